"""Normalisations, each as the one Relax op whose gradient starts from the stored statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext

_DEVIATION_SHIFT = 1e-9


def _batch_normalization(context: NodeContext) -> Any:
    if context.attribute("training_mode", 0):
        raise CannotConvert("it was exported in training mode; export the model in evaluation mode")
    normalised = context.emit(
        relax.op.nn.batch_norm(
            *context.inputs[:5],
            axis=1,
            epsilon=float(context.attribute("epsilon", 1e-5)),
            momentum=1.0 - float(context.attribute("momentum", 0.9)),  # TVM weighs the new value, ONNX the old one
            training=False,
        )
    )
    return context.emit(relax.TupleGetItem(normalised, 0))


def _layer_normalization(context: NodeContext) -> Any:
    if any(context.node.output[1:]):
        raise CannotConvert("its outputs for the mean and the deviation are not supported")
    x, scale, shift = context.input(0), context.input(1), context.input(2)
    shape = shape_of(x)
    axis = context.attribute("axis", -1) % len(shape)
    scale = _broadcast(context, scale, shape[axis:])
    zeros = np.zeros(shape[axis:], dtype_of(x))
    shift = relax.const(runtime.tensor(zeros)) if shift is None else _broadcast(context, shift, shape[axis:])
    axes = list(range(axis, len(shape)))
    epsilon = float(context.attribute("epsilon", 1e-5))
    return context.emit(relax.op.nn.layer_norm(x, scale, shift, axes=axes, epsilon=epsilon))


def _rms_normalization(context: NodeContext) -> Any:
    x = context.required(0)
    axis = context.attribute("axis", -1) % len(shape_of(x))
    scale = _broadcast(context, context.required(1), shape_of(x)[axis:])
    axes = list(range(axis, len(shape_of(x))))
    return context.emit(relax.op.nn.rms_norm(x, scale, axes, float(context.attribute("epsilon", 1e-5))))


def _mean_variance_normalization(context: NodeContext) -> Any:
    """(x − mean) / (deviation + ε), where ε is what onnxruntime adds."""
    x, axes = context.required(0), [int(a) for a in context.attribute("axes", [0, 2, 3])]
    centred = context.emit(relax.op.subtract(x, context.emit(relax.op.mean(x, axes, keepdims=True))))
    variance = context.emit(relax.op.mean(context.emit(relax.op.square(centred)), axes, keepdims=True))
    deviation = context.emit(relax.op.add(context.emit(relax.op.sqrt(variance)), context.number(_DEVIATION_SHIFT, x)))
    return context.emit(relax.op.divide(centred, deviation))


def _broadcast(context: NodeContext, parameter: Any, shape: tuple[int, ...]) -> Any:
    return parameter if shape_of(parameter) == shape else context.emit(relax.op.broadcast_to(parameter, shape))


def _instance_normalization(context: NodeContext) -> Any:
    axes = list(range(2, len(shape_of(context.input(0)))))
    epsilon = float(context.attribute("epsilon", 1e-5))
    return context.emit(relax.op.nn.instance_norm(*context.inputs[:3], channel_axis=1, axes=axes, epsilon=epsilon))


def _group_normalization(context: NodeContext) -> Any:
    x = context.input(0)
    channels, groups = shape_of(x)[1], int(context.attribute("num_groups", 1))
    scale, shift = (_per_channel(context, context.input(i), channels) for i in (1, 2))
    axes = list(range(2, len(shape_of(x))))
    epsilon = float(context.attribute("epsilon", 1e-5))
    return context.emit(relax.op.nn.group_norm(x, scale, shift, groups, 1, axes, epsilon=epsilon))


def _per_channel(context: NodeContext, parameter: Any, channels: int) -> Any:
    """Before opset 21 there was one parameter a group instead of one a channel."""
    count = shape_of(parameter)[0]
    return parameter if count == channels else context.emit(relax.op.repeat(parameter, channels // count, 0))


def _lp_normalization(context: NodeContext) -> Any:
    x, axis = context.input(0), context.attribute("axis", -1)
    if context.attribute("p", 2) == 1:
        norm = context.emit(relax.op.sum(context.emit(relax.op.abs(x)), [axis], keepdims=True))
    else:
        squares = context.emit(relax.op.sum(context.emit(relax.op.square(x)), [axis], keepdims=True))
        norm = context.emit(relax.op.sqrt(squares))
    return context.emit(relax.op.divide(x, norm))


def _local_response(context: NodeContext) -> Any:
    """x / (bias + α · mean of the squares of neighbouring channels) ** β; beyond the ends there are zeros."""
    x, size = context.required(0), int(context.attribute("size", 1))
    batch, channels, *rest = shape_of(x)
    if not 0 < size <= 2 * channels:
        raise CannotConvert(f"a window of {size} channels does not fit {channels}")
    squares = context.emit(relax.op.reshape(context.emit(relax.op.square(x)), (batch, 1, channels, math.prod(rest))))
    before = (size - 1) // 2
    means = context.emit(
        relax.op.nn.avg_pool2d(
            squares,
            [size, 1],
            strides=[1, 1],
            padding=[before, 0, size - 1 - before, 0],
            count_include_pad=True,
        )
    )
    scaled = context.emit(relax.op.multiply(means, context.number(float(context.attribute("alpha", 1e-4)), x)))
    shifted = context.emit(relax.op.add(scaled, context.number(float(context.attribute("bias", 1.0)), x)))
    divisor = context.emit(relax.op.power(shifted, context.number(float(context.attribute("beta", 0.75)), x)))
    return context.emit(relax.op.divide(x, context.emit(relax.op.reshape(divisor, shape_of(x)))))


NORMALISATION_CONVERTERS: Mapping[str, Converter] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LRN": _local_response,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": _rms_normalization,
}
