"""ONNX op → Relax, for the ops whose stock converter gives something that cannot be differentiated or is wasteful.

A converter takes the importer's context and the node and returns one expression, or one per output. What is not in
`CONVERTERS` goes through TVM's own converter for that op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from edgetrain._tvm import dtype_of, relax, shape_of
from edgetrain.model.model import Array


class CannotConvert(Exception):
    """Why a node cannot be imported; the importer adds the node's name and collects them all."""


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """One node with its inputs resolved: Relax expressions, and arrays where a value is known."""

    node: Any
    builder: Any
    inputs: Sequence[Any]  # relax.Expr, or None for an omitted optional input
    known: Sequence[Array | None]

    def attribute(self, name: str, default: Any) -> Any:
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def input(self, index: int) -> Any:
        return self.inputs[index] if index < len(self.inputs) else None

    def known_input(self, index: int) -> Array | None:
        return self.known[index] if index < len(self.known) else None

    def emit(self, expr: Any) -> Any:
        return self.builder.emit(expr)


Converter = Callable[[NodeContext], Any]


def same_padding(sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], *, lower: bool) -> list[int]:
    """ONNX's `auto_pad = SAME_UPPER | SAME_LOWER` as explicit pads: all begins, then all ends."""
    begins, ends = [], []
    for size, extent, stride in zip(sizes, kernel, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(large if lower else small)
        ends.append(small if lower else large)
    return begins + ends


def _pads(context: NodeContext, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int]) -> list[int]:
    mode = context.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return same_padding(sizes, kernel, strides, lower=mode == "SAME_LOWER")
    if mode == "VALID":
        return [0] * (2 * len(kernel))
    return list(context.attribute("pads", [0] * (2 * len(kernel))))


def _conv(context: NodeContext) -> Any:
    data, weight, bias = context.input(0), context.input(1), context.input(2)
    spatial = len(shape_of(weight)) - 2
    if spatial == 1:
        return _conv1d(context)
    if spatial != 2:
        raise CannotConvert(f"{spatial}-D convolution is not supported, only 1-D and 2-D")
    strides = list(context.attribute("strides", [1, 1]))
    dilations = list(context.attribute("dilations", [1, 1]))
    kernel = [(k - 1) * d + 1 for k, d in zip(shape_of(weight)[2:], dilations, strict=True)]
    result = context.emit(
        relax.op.nn.conv2d(
            data,
            weight,
            strides=strides,
            padding=_pads(context, shape_of(data)[2:], kernel, strides),
            dilation=dilations,
            groups=context.attribute("group", 1),
        )
    )
    return _add_bias(context, result, bias)


def _conv1d(context: NodeContext) -> Any:
    """A 1-D convolution is a 2-D one of height 1: one set of gradients and schedules serves both."""
    data, weight, bias = context.input(0), context.input(1), context.input(2)
    stride, dilation = context.attribute("strides", [1])[0], context.attribute("dilations", [1])[0]
    extent = (shape_of(weight)[2] - 1) * dilation + 1
    begin, end = _pads(context, shape_of(data)[2:], [extent], [stride])
    n, c, length = shape_of(data)
    tall = context.emit(relax.op.reshape(data, (n, c, 1, length)))
    filters = context.emit(relax.op.reshape(weight, (*shape_of(weight)[:2], 1, shape_of(weight)[2])))
    result = context.emit(
        relax.op.nn.conv2d(
            tall,
            filters,
            strides=[1, stride],
            padding=[0, begin, 0, end],
            dilation=[1, dilation],
            groups=context.attribute("group", 1),
        )
    )
    result = _add_bias(context, result, bias)
    n, c, _, length = shape_of(result)
    return context.emit(relax.op.reshape(result, (n, c, length)))


def _add_bias(context: NodeContext, result: Any, bias: Any) -> Any:
    if bias is None:
        return result
    shaped = context.emit(relax.op.reshape(bias, (1, shape_of(bias)[0], *[1] * (len(shape_of(result)) - 2))))
    return context.emit(relax.op.add(result, shaped))


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


def _clip(context: NodeContext) -> Any:
    low, high = context.known_input(1), context.known_input(2)
    if (context.input(1) is not None and low is None) or (context.input(2) is not None and high is None):
        raise CannotConvert("its bounds are computed while the model runs; they must be constants")
    lowest = low.item() if low is not None else -np.inf
    highest = high.item() if high is not None else np.inf
    return context.emit(relax.op.clip(context.input(0), lowest, highest))


def _gemm(context: NodeContext) -> Any:
    a, b, c = context.input(0), context.input(1), context.input(2)
    if context.attribute("transA", 0):
        a = context.emit(relax.op.permute_dims(a, [1, 0]))
    if context.attribute("transB", 0):
        b = context.emit(relax.op.permute_dims(b, [1, 0]))
    result = context.emit(relax.op.matmul(a, b))
    alpha, beta = float(context.attribute("alpha", 1.0)), float(context.attribute("beta", 1.0))
    if alpha != 1.0:
        result = context.emit(relax.op.multiply(result, relax.const(alpha, dtype_of(result))))
    if c is None:
        return result
    if beta != 1.0:
        c = context.emit(relax.op.multiply(c, relax.const(beta, dtype_of(result))))
    return context.emit(relax.op.add(result, c))


def _flatten(context: NodeContext) -> Any:
    shape = shape_of(context.input(0))
    axis = context.attribute("axis", 1) % (len(shape) + 1)
    rows = int(np.prod(shape[:axis], dtype=np.int64))
    return context.emit(relax.op.reshape(context.input(0), (rows, int(np.prod(shape[axis:], dtype=np.int64)))))


def _reshape(context: NodeContext) -> Any:
    target = context.known_input(1)
    if target is None:
        raise CannotConvert("its shape is computed from data while the model runs")
    shape = shape_of(context.input(0))
    dims = [int(d) for d in target]
    if not context.attribute("allowzero", 0):
        dims = [shape[i] if d == 0 else d for i, d in enumerate(dims)]
    if -1 in dims:
        rest = int(np.prod([d for d in dims if d != -1], dtype=np.int64))
        dims[dims.index(-1)] = int(np.prod(shape, dtype=np.int64)) // max(rest, 1)
    if int(np.prod(dims, dtype=np.int64)) != int(np.prod(shape, dtype=np.int64)):
        raise CannotConvert(f"it reshapes {list(shape)} to {dims}; the batch may be fixed inside the model")
    return context.emit(relax.op.reshape(context.input(0), dims))


def _global_average_pool(context: NodeContext) -> Any:
    axes = list(range(2, len(shape_of(context.input(0)))))
    return context.emit(relax.op.mean(context.input(0), axes, keepdims=True))


def _pool(emit_2d: Callable[..., Any]) -> Converter:
    def convert(context: NodeContext) -> Any:
        kernel = list(context.attribute("kernel_shape", []))
        if len(kernel) != 2:
            raise CannotConvert(f"{len(kernel)}-D pooling is not supported, only 2-D")
        if len(context.node.output) > 1 and context.node.output[1]:
            raise CannotConvert("the second output (indices) is not supported")
        strides = list(context.attribute("strides", [1, 1]))
        dilations = list(context.attribute("dilations", [1, 1]))
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        extra = (
            {"count_include_pad": bool(context.attribute("count_include_pad", 0))}
            if context.node.op_type == "AveragePool"
            else {}
        )
        return context.emit(
            emit_2d(
                context.input(0),
                kernel,
                strides=strides,
                padding=_pads(context, shape_of(context.input(0))[2:], extents, strides),
                dilation=dilations,
                ceil_mode=bool(context.attribute("ceil_mode", 0)),
                **extra,
            )
        )

    return convert


def _elementwise_many(emit_pair: Callable[[Any, Any], Any]) -> Converter:
    def convert(context: NodeContext) -> Any:
        result = context.input(0)
        for other in context.inputs[1:]:
            result = context.emit(emit_pair(result, other))
        return result

    return convert


def _unary(emit_one: Callable[[Any], Any]) -> Converter:
    return lambda context: context.emit(emit_one(context.input(0)))


def _binary(emit_pair: Callable[[Any, Any], Any]) -> Converter:
    return lambda context: context.emit(emit_pair(context.input(0), context.input(1)))


CONVERTERS: Mapping[str, Converter] = {
    "Add": _binary(relax.op.add),
    "AveragePool": _pool(relax.op.nn.avg_pool2d),
    "BatchNormalization": _batch_normalization,
    "Clip": _clip,
    "Conv": _conv,
    "Div": _binary(relax.op.divide),
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average_pool,
    "MatMul": _binary(relax.op.matmul),
    "Max": _elementwise_many(relax.op.maximum),
    "MaxPool": _pool(relax.op.nn.max_pool2d),
    "Min": _elementwise_many(relax.op.minimum),
    "Mul": _binary(relax.op.multiply),
    "Relu": _unary(relax.op.nn.relu),
    "Reshape": _reshape,
    "Sigmoid": _unary(relax.op.sigmoid),
    "Sub": _binary(relax.op.subtract),
    "Sum": _elementwise_many(relax.op.add),
    "Tanh": _unary(relax.op.tanh),
}
