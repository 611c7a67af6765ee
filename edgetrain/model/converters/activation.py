"""Activations, as one Relax op where it has a gradient from its output, else built from ops that have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgetrain._tvm import relax, shape_of
from edgetrain.model.converters.context import Converter, NodeContext, unary

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # ONNX's defaults


def _clip(context: NodeContext) -> Any:
    low, high = context.known_input(1), context.known_input(2)
    if (context.has(1) and low is None) or (context.has(2) and high is None):
        return _clip_to_computed(context)
    lowest = low.item() if low is not None else context.attribute("min", -np.inf)  # attributes before opset 11
    highest = high.item() if high is not None else context.attribute("max", np.inf)
    return context.emit(relax.op.clip(context.required(0), lowest, highest))


def _clip_to_computed(context: NodeContext) -> Any:
    """Bounds that are tensors of the model get their gradient too."""
    data = context.required(0)
    data = context.emit(relax.op.maximum(data, context.required(1))) if context.has(1) else data
    return context.emit(relax.op.minimum(data, context.required(2))) if context.has(2) else data


def _leaky_relu(context: NodeContext) -> Any:
    return context.emit(relax.op.nn.leakyrelu(context.input(0), float(context.attribute("alpha", 0.01))))


def _negative_part(context: NodeContext, x: Any) -> Any:
    return context.emit(relax.op.clip(x, -np.inf, 0.0))


def _prelu(context: NodeContext) -> Any:
    x, slope = context.input(0), context.input(1)
    shape, slopes = shape_of(x), shape_of(slope)
    aligned = (1,) * (len(shape) - len(slopes)) + slopes
    per_channel = len(shape) >= 2 and all(s == 1 for i, s in enumerate(aligned) if i != 1) and aligned[1] == shape[1]
    if per_channel:
        flat = context.emit(relax.op.reshape(slope, (shape[1],))) if len(slopes) != 1 else slope
        return context.emit(relax.op.nn.prelu(x, flat, 1))
    leak = context.emit(relax.op.multiply(_negative_part(context, x), slope))
    return context.emit(relax.op.add(context.emit(relax.op.nn.relu(x)), leak))


def _exponential(context: NodeContext, alpha: float, divisor: float, gamma: float) -> Any:
    """γ · (max(x, 0) + α · (exp(min(x, 0) / divisor) − 1)): ELU, CELU and SELU."""
    x = context.input(0)
    below = _negative_part(context, x)
    if divisor != 1.0:
        below = context.emit(relax.op.multiply(below, context.number(1.0 / divisor, x)))
    shifted = context.emit(relax.op.subtract(context.emit(relax.op.exp(below)), context.number(1.0, x)))
    bent = context.emit(relax.op.multiply(shifted, context.number(alpha, x)))
    result = context.emit(relax.op.add(context.emit(relax.op.nn.relu(x)), bent))
    return context.emit(relax.op.multiply(result, context.number(gamma, x))) if gamma != 1.0 else result


def _elu(context: NodeContext) -> Any:
    return _exponential(context, float(context.attribute("alpha", 1.0)), 1.0, 1.0)


def _celu(context: NodeContext) -> Any:
    alpha = float(context.attribute("alpha", 1.0))
    return _exponential(context, alpha, alpha, 1.0)


def _selu(context: NodeContext) -> Any:
    alpha, gamma = (float(context.attribute(n, d)) for n, d in (("alpha", _SELU_ALPHA), ("gamma", _SELU_GAMMA)))
    if (alpha, gamma) == (_SELU_ALPHA, _SELU_GAMMA):
        return context.emit(relax.op.nn.selu(context.input(0)))
    return _exponential(context, alpha, 1.0, gamma)


def _gelu(context: NodeContext) -> Any:
    approximate = context.attribute("approximate", "none")
    return context.emit((relax.op.nn.gelu_tanh if approximate == "tanh" else relax.op.nn.gelu)(context.input(0)))


def _ramp(context: NodeContext, alpha: float, beta: float) -> Any:
    """clip(α · x + β, 0, 1)"""
    x = context.input(0)
    scaled = context.emit(relax.op.multiply(x, context.number(alpha, x)))
    return context.emit(relax.op.clip(context.emit(relax.op.add(scaled, context.number(beta, x))), 0.0, 1.0))


def _hard_sigmoid(context: NodeContext) -> Any:
    return _ramp(context, float(context.attribute("alpha", 0.2)), float(context.attribute("beta", 0.5)))


def _hard_swish(context: NodeContext) -> Any:
    return context.emit(relax.op.multiply(context.input(0), _ramp(context, 1.0 / 6.0, 0.5)))


def _swish(context: NodeContext) -> Any:
    """x · sigmoid(α · x)"""
    x, alpha = context.required(0), float(context.attribute("alpha", 1.0))
    if alpha == 1.0:
        return context.emit(relax.op.nn.silu(x))
    scaled = context.emit(relax.op.multiply(x, context.number(alpha, x)))
    return context.emit(relax.op.multiply(x, context.emit(relax.op.sigmoid(scaled))))


def _shrink(context: NodeContext) -> Any:
    """x moved towards 0 by `bias`, and 0 where it is within `lambd` of it."""
    x, edge = context.required(0), float(context.attribute("lambd", 0.5))
    bias, zero = context.number(float(context.attribute("bias", 0.0)), x), context.number(0.0, x)
    above = context.emit(relax.op.greater(x, context.number(edge, x)))
    below = context.emit(relax.op.less(x, context.number(-edge, x)))
    lower = context.emit(relax.op.where(below, context.emit(relax.op.add(x, bias)), zero))
    return context.emit(relax.op.where(above, context.emit(relax.op.subtract(x, bias)), lower))


def _mish(context: NodeContext) -> Any:
    soft = context.emit(relax.op.nn.softplus(context.input(0)))
    return context.emit(relax.op.multiply(context.input(0), context.emit(relax.op.tanh(soft))))


def _softsign(context: NodeContext) -> Any:
    x = context.input(0)
    size = context.emit(relax.op.add(context.emit(relax.op.abs(x)), context.number(1.0, x)))
    return context.emit(relax.op.divide(x, size))


def _thresholded_relu(context: NodeContext) -> Any:
    x = context.input(0)
    above = context.emit(relax.op.greater(x, context.number(float(context.attribute("alpha", 1.0)), x)))
    return context.emit(relax.op.where(above, x, context.number(0.0, x)))


def _softmax_of(emit_softmax: Callable[[Any, int], Any]) -> Converter:
    def convert(context: NodeContext) -> Any:
        data = context.required(0)
        if context.opset >= 13:
            return context.emit(emit_softmax(data, context.attribute("axis", -1)))
        # Before, all axes from the given one on were one.
        shape = shape_of(data)
        axis = context.attribute("axis", 1) % len(shape)
        if math.prod(shape[axis + 1 :]) == 1:
            return context.emit(emit_softmax(data, axis))
        flat = context.emit(relax.op.reshape(data, (math.prod(shape[:axis]), math.prod(shape[axis:]))))
        return context.emit(relax.op.reshape(context.emit(emit_softmax(flat, -1)), shape))

    return convert


ACTIVATION_CONVERTERS: Mapping[str, Converter] = {
    "Celu": _celu,
    "Clip": _clip,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": _softmax_of(relax.op.nn.log_softmax),
    "Mish": _mish,
    "PRelu": _prelu,
    "Relu": unary(relax.op.nn.relu),
    "Selu": _selu,
    "Sigmoid": unary(relax.op.sigmoid),
    "Shrink": _shrink,
    "Softmax": _softmax_of(relax.op.nn.softmax),
    "Softplus": unary(relax.op.nn.softplus),
    "Softsign": _softsign,
    "Swish": _swish,
    "Tanh": unary(relax.op.tanh),
    "ThresholdedRelu": _thresholded_relu,
}
