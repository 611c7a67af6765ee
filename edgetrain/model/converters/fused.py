"""What onnxruntime's optimizer fuses, taken apart again: its ops of the domain `com.microsoft`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import helper

from edgetrain._tvm import relax, shape_of
from edgetrain.model.converters.activation import ACTIVATION_CONVERTERS
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext
from edgetrain.model.converters.normalisation import NORMALISATION_CONVERTERS
from edgetrain.model.converters.window import convolution

_DOMAIN = "com.microsoft"
# How a fused activation's parameters are called as attributes of its own op.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
}


def _with_bias(context: NodeContext, index: int) -> Any:
    data = context.required(0)
    return context.emit(relax.op.add(data, context.required(index))) if context.has(index) else data


def _bias_gelu(context: NodeContext) -> Any:
    return context.emit(relax.op.nn.gelu(_with_bias(context, 1)))


def _fast_gelu(context: NodeContext) -> Any:
    return context.emit(relax.op.nn.gelu_tanh(_with_bias(context, 1)))


def _quick_gelu(context: NodeContext) -> Any:
    x = context.required(0)
    scaled = context.emit(relax.op.multiply(x, context.number(float(context.attribute("alpha", 1.702)), x)))
    return context.emit(relax.op.multiply(x, context.emit(relax.op.sigmoid(scaled))))


def _fused_matmul(context: NodeContext) -> Any:
    if context.attribute("transBatchA", 0) or context.attribute("transBatchB", 0):
        raise CannotConvert("transposed batches are not supported")
    one, two = (_turned(context, i, f"trans{'AB'[i]}") for i in (0, 1))
    product = context.emit(relax.op.matmul(one, two))
    alpha = float(context.attribute("alpha", 1.0))
    return product if alpha == 1.0 else context.emit(relax.op.multiply(product, context.number(alpha, product)))


def _turned(context: NodeContext, index: int, attribute: str) -> Any:
    data = context.required(index)
    rank = len(shape_of(data))
    if not context.attribute(attribute, 0) or rank < 2:
        return data
    return context.emit(relax.op.permute_dims(data, [*range(rank - 2), rank - 1, rank - 2]))


def _fused_conv(context: NodeContext) -> Any:
    result = convolution(context, context.required(0), context.required(1), context.input(2))
    if context.has(3):
        result = context.emit(relax.op.add(result, context.required(3)))
    activation = context.attribute("activation", "")
    if not activation:
        return result
    if activation not in _PARAMETERS:
        raise CannotConvert(f"activation `{activation}` is not supported")
    values = context.attribute("activation_params", [])
    named = dict(zip(_PARAMETERS[activation], values, strict=False))
    node = helper.make_node(activation, ["x"], ["y"], **named)
    if activation == "Tanh":
        return context.emit(relax.op.tanh(result))
    return ACTIVATION_CONVERTERS[activation](dataclasses.replace(context, node=node, values=[result], opset=6))


def _skip_layer_normalization(context: NodeContext) -> list[Any]:
    """Layer normalisation of a sum, with the sum as the fourth output."""
    return _skip(context, "LayerNormalization", (2, 3), bias=4)


def _skip_simplified_layer_normalization(context: NodeContext) -> list[Any]:
    return _skip(context, "RMSNormalization", (2,), bias=3)


def _skip(context: NodeContext, op: str, parameters: Sequence[int], *, bias: int) -> list[Any]:
    if any(context.node.output[1:3]):
        raise CannotConvert("its outputs for the mean and the deviation are not supported")
    total = context.emit(relax.op.add(context.required(0), context.required(1)))
    total = context.emit(relax.op.add(total, context.required(bias))) if context.has(bias) else total
    values = [total, *(context.values[i] if context.has(i) else None for i in parameters)]
    epsilon = float(context.attribute("epsilon", 1e-12))
    node = helper.make_node(op, [str(i) for i in range(len(values))], ["y"], epsilon=epsilon)
    normalised = NORMALISATION_CONVERTERS[op](dataclasses.replace(context, node=node, values=values))
    return [normalised, None, None, total][: len(context.node.output)]


FUSED_CONVERTERS: Mapping[tuple[str, str], Converter] = {
    (_DOMAIN, "BiasGelu"): _bias_gelu,
    (_DOMAIN, "FastGelu"): _fast_gelu,
    (_DOMAIN, "FusedConv"): _fused_conv,
    (_DOMAIN, "FusedMatMul"): _fused_matmul,
    (_DOMAIN, "Gelu"): ACTIVATION_CONVERTERS["Gelu"],
    (_DOMAIN, "QuickGelu"): _quick_gelu,
    (_DOMAIN, "SkipLayerNormalization"): _skip_layer_normalization,
    (_DOMAIN, "SkipSimplifiedLayerNormalization"): _skip_simplified_layer_normalization,
}
