"""Quantised models as the float models they came from: a weight is what its integers stand for, an activation is
clipped to the range that its integers can hold and no longer rounded. The clip stays, for quantisers remove a ReLU
or Clip that the range implies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
from edgetrain.model.converters.activation import ACTIVATION_CONVERTERS
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext
from edgetrain.model.converters.recurrent import RECURRENT_CONVERTERS
from edgetrain.model.converters.window import WINDOW_CONVERTERS, convolution
from edgetrain.model.model import Array
from edgetrain.model.scope import Stored, stored


def _per_axis(values: Array, rank: int, axis: int) -> Array:
    """Scales or zero points of one axis, shaped to broadcast over a tensor of this rank."""
    if values.ndim != 1 or values.size == 1:
        return values.reshape(()) if values.size == 1 else values
    shape = [1] * rank
    shape[axis % max(rank, 1)] = values.size
    return values.reshape(shape)


def _scale_and_zero(context: NodeContext, first: int, rank: int, axis: int) -> tuple[Array, Array]:
    scale, zero = context.known_input(first), context.known_input(first + 1)
    if scale is None or (zero is None and context.has(first + 1)):
        raise CannotConvert("its scale or zero point depends on data; they must be constants")
    zero = np.zeros((), np.int64) if zero is None else zero
    return _per_axis(scale, rank, axis).astype(np.float32), _per_axis(zero, rank, axis).astype(np.float32)


def _constant(array: Array) -> Any:
    return relax.const(runtime.tensor(np.array(array, np.float32, order="C")))


def _quantize_linear(context: NodeContext) -> Any:
    """Clipped to what the integers hold, in the scale of the input."""
    if context.attribute("block_size", 0):
        raise CannotConvert("blocked quantisation of activations is not supported")
    return _clipped(context, context.required(0), 1, context.attribute("axis", 1))


def _clipped(context: NodeContext, data: Any, first: int, axis: int = 1) -> Any:
    """`data` within what integers hold whose scale and zero point are the inputs from `first` on."""
    zero = context.known_input(first + 1)
    limits = np.iinfo(zero.dtype if zero is not None and zero.dtype.kind in "iu" else np.uint8)
    scale, shift = _scale_and_zero(context, first, len(shape_of(data)), axis)
    low, high = (np.asarray((limit - shift) * scale) for limit in (limits.min, limits.max))
    if low.size == 1 and high.size == 1:
        return context.emit(relax.op.clip(data, float(low.item()), float(high.item())))
    return context.emit(relax.op.minimum(context.emit(relax.op.maximum(data, _constant(low))), _constant(high)))


def _dequantize_linear(context: NodeContext) -> Any:
    return _real(context, 0, context.attribute("axis", 1))


def _real(context: NodeContext, first: int, axis: int = 1) -> Any:
    """What an input stands for, by the scale and zero point after it.

    A tensor that is float already went through `_clipped`; integers are data, or a weight, which is learned.
    """
    known = context.known_input(first)
    if known is not None and known.dtype.kind in "iu":
        scale, zero = _scale_and_zero(context, first + 1, known.ndim, axis)
        weight = stored(context.node.input[first], (known.astype(np.float32) - zero) * scale, may_learn=True)
        return context.resolver.tensor(weight)
    data = context.required(first)
    if dtype_of(data).startswith("float"):
        return data
    scale, zero = _scale_and_zero(context, first + 1, len(shape_of(data)), axis)
    values = context.emit(relax.op.astype(data, "float32"))
    values = context.emit(relax.op.subtract(values, _constant(zero))) if np.any(zero) else values
    return context.emit(relax.op.multiply(values, _constant(scale)))


def _dynamic_quantize_linear(context: NodeContext) -> list[Any]:
    """The input itself, at a scale of 1: the integer ops that read it are float ops here."""
    return [
        context.required(0),
        Stored("scale", np.array(1.0, np.float32)),
        Stored("zero", np.array(0, np.uint8)),
    ]


def _centred(context: NodeContext, index: int, zero_index: int) -> Any:
    """Input `index` minus its zero point, in float; learned where it is a constant."""
    zero = context.known_input(zero_index)
    if context.has(zero_index) and zero is None:
        raise CannotConvert("its zero point depends on data; it must be a constant")
    known = context.known_input(index)
    if known is not None:
        # One zero point a row of a left factor or an output channel, a column of a right factor.
        axis = 0 if context.node.op_type == "ConvInteger" else -1
        shift = 0 if zero is None else _per_axis(zero, known.ndim, axis).astype(np.float32)
        weight = stored(context.node.input[index], known.astype(np.float32) - shift, may_learn=True)
        return context.resolver.tensor(weight)
    data = context.required(index)
    data = data if dtype_of(data).startswith("float") else context.emit(relax.op.astype(data, "float32"))
    if zero is None or not np.any(zero):
        return data
    return context.emit(relax.op.subtract(data, _constant(_per_axis(zero, len(shape_of(data)), -2))))


def _matmul_integer(context: NodeContext) -> Any:
    return context.emit(relax.op.matmul(_centred(context, 0, 2), _centred(context, 1, 3)))


def _conv_integer(context: NodeContext) -> Any:
    return convolution(context, _centred(context, 0, 2), _centred(context, 1, 3), None)


def _qlinear_conv(context: NodeContext) -> Any:
    """x, w and y with a scale and a zero point each, then a bias of 32-bit integers in the scales of x and w."""
    bias = None
    if context.has(8):
        whole, x_scale, w_scale = (context.known_input(i) for i in (8, 1, 4))
        if whole is None or x_scale is None or w_scale is None:
            raise CannotConvert("its bias or a scale depends on data; they must be constants")
        real = whole.astype(np.float32) * x_scale.reshape(-1) * w_scale.reshape(-1)
        bias = context.resolver.tensor(stored(context.node.input[8], real.astype(np.float32), may_learn=True))
    return _clipped(context, convolution(context, _real(context, 0), _real(context, 3, 0), bias), 6)


def _qlinear(emit_pair: Callable[[Any, Any], Any]) -> Converter:
    """Two operands and the result, with a scale and a zero point each."""

    def convert(context: NodeContext) -> Any:
        one, two = _real(context, 0, -2), _real(context, 3, -1)
        return _clipped(context, context.emit(emit_pair(one, two)), 6)

    return convert


def _qlinear_of(op: str) -> Converter:
    """One operand and the result: ONNX's op of that name between them."""

    def convert(context: NodeContext) -> Any:
        plain = dataclasses.replace(context, values=[_real(context, 0)])
        return _clipped(context, {**ACTIVATION_CONVERTERS, **WINDOW_CONVERTERS}[op](plain), 3)

    return convert


def _dynamic_quantize_lstm(context: NodeContext) -> Any:
    """ONNX Runtime's LSTM with integer weights, which it keeps transposed: (directions, inputs, gates · hidden)."""
    weights = []
    for index, scale_index in ((1, 8), (2, 10)):
        known = context.known_input(index)
        if known is None:
            raise CannotConvert("its quantised weights depend on data; they must be constants")
        values = [context.known_input(scale_index), context.known_input(scale_index + 1)]
        if values[0] is None or values[1] is None:
            raise CannotConvert("its scale or zero point depends on data; they must be constants")
        scale, zero = (_per_gate(v.astype(np.float32), known.shape) for v in values if v is not None)
        array = np.swapaxes((known.astype(np.float32) - zero) * scale, 1, 2)
        weights.append(stored(context.node.input[index], np.ascontiguousarray(array), may_learn=True))
    plain = NodeContext(
        node=context.node,
        builder=context.builder,
        values=[context.values[0], *weights, *context.values[3:8]],
        resolver=context.resolver,
        opset=context.opset,
        rebound_batch=context.rebound_batch,
    )
    return RECURRENT_CONVERTERS["LSTM"](plain)


def _per_gate(values: Array, shape: tuple[int, ...]) -> Array:
    """One scale a direction, or one a column of each direction."""
    return values.reshape((shape[0], 1, -1)) if values.ndim <= 2 else values


QUANTISATION_CONVERTERS: Mapping[str, Converter] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear(relax.op.matmul),
    "QuantizeLinear": _quantize_linear,
}
MICROSOFT_CONVERTERS: Mapping[tuple[str, str], Converter] = {
    ("com.microsoft", "DynamicQuantizeLSTM"): _dynamic_quantize_lstm,
    ("com.microsoft", "QLinearAdd"): _qlinear(relax.op.add),
    ("com.microsoft", "QLinearMul"): _qlinear(relax.op.multiply),
    ("com.microsoft", "QLinearGlobalAveragePool"): _qlinear_of("GlobalAveragePool"),
    ("com.microsoft", "QLinearLeakyRelu"): _qlinear_of("LeakyRelu"),
    ("com.microsoft", "QLinearSigmoid"): _qlinear_of("Sigmoid"),
}
