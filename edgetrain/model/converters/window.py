"""Convolutions and pools. One spatial axis is two with a height of 1: the same gradients and schedules serve both."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import relax, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext


def same_padding(sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], *, lower: bool) -> list[int]:
    """ONNX's `auto_pad = SAME_UPPER | SAME_LOWER` as explicit pads: all begins, then all ends."""
    begins, ends = [], []
    for size, extent, stride in zip(sizes, kernel, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(large if lower else small)
        ends.append(small if lower else large)
    return begins + ends


@dataclass(frozen=True, slots=True, kw_only=True)
class _Geometry:
    """A window with two spatial axes."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]  # top, left, bottom, right

    @property
    def extents(self) -> list[int]:
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]


def _geometry(context: NodeContext, kernel: Sequence[int], sizes: Sequence[int]) -> _Geometry:
    """The node's window; a 1-D one gets a height of 1."""
    spatial = len(kernel)
    if spatial not in (1, 2):
        raise CannotConvert(f"{spatial}-D windows are not supported, only 1-D and 2-D")
    strides = list(context.attribute("strides", [1] * spatial))
    dilations = list(context.attribute("dilations", [1] * spatial))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    mode = context.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = same_padding(sizes, extents, strides, lower=mode == "SAME_LOWER")
    elif mode == "VALID":
        pads = [0] * (2 * spatial)
    else:
        pads = list(context.attribute("pads", [0] * (2 * spatial)))
    if spatial == 1:
        return _Geometry(
            kernel=[1, *kernel], strides=[1, *strides], dilations=[1, *dilations], pads=[0, pads[0], 0, pads[1]]
        )
    return _Geometry(kernel=list(kernel), strides=strides, dilations=dilations, pads=pads)


def _tall(context: NodeContext, expr: Any) -> Any:
    """With a height of 1 before the only spatial axis, where there is only one."""
    shape = shape_of(expr)
    return expr if len(shape) == 4 else context.emit(relax.op.reshape(expr, (*shape[:2], 1, shape[2])))


def _flat_again(context: NodeContext, expr: Any, rank: int) -> Any:
    if rank == 4:
        return expr
    n, c, _, length = shape_of(expr)
    return context.emit(relax.op.reshape(expr, (n, c, length)))


def _add_bias(context: NodeContext, result: Any, bias: Any) -> Any:
    if bias is None:
        return result
    shaped = context.emit(relax.op.reshape(bias, (1, shape_of(bias)[0], *[1] * (len(shape_of(result)) - 2))))
    return context.emit(relax.op.add(result, shaped))


def _conv(context: NodeContext) -> Any:
    return convolution(context, context.required(0), context.required(1), context.input(2))


def convolution(context: NodeContext, data: Any, weight: Any, bias: Any | None) -> Any:
    """The node's convolution of tensors that may not be its own inputs."""
    window = _geometry(context, shape_of(weight)[2:], shape_of(data)[2:])
    result = context.emit(
        relax.op.nn.conv2d(
            _tall(context, data),
            _tall(context, weight),
            strides=window.strides,
            padding=window.pads,
            dilation=window.dilations,
            groups=context.attribute("group", 1),
        )
    )
    return _flat_again(context, _add_bias(context, result, bias), len(shape_of(data)))


def _conv_transpose(context: NodeContext) -> Any:
    data, weight, bias = context.input(0), context.input(1), context.input(2)
    spatial = len(shape_of(weight)) - 2
    window = _geometry(context, shape_of(weight)[2:], shape_of(data)[2:])
    extra = [0] * (2 - spatial) + list(context.attribute("output_padding", [0] * spatial))
    sizes = [1] * (2 - spatial) + list(shape_of(data)[2:])
    result = context.emit(
        relax.op.nn.conv2d_transpose(
            _tall(context, data),
            _tall(context, weight),
            strides=window.strides,
            padding=_transposed_pads(context, window, sizes, extra),
            output_padding=extra,
            dilation=window.dilations,
            groups=context.attribute("group", 1),
        )
    )
    return _flat_again(context, _add_bias(context, result, bias), len(shape_of(data)))


def _transposed_pads(context: NodeContext, window: _Geometry, sizes: Sequence[int], extra: Sequence[int]) -> list[int]:
    """ONNX may give the output's size instead of the pads; then they follow from it."""
    mode = context.attribute("auto_pad", "NOTSET")
    wanted = context.attribute("output_shape", None)
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(sizes, window.strides, strict=True)]
    if wanted is None:
        return window.pads
    wanted = ([1] * 2 + list(wanted))[-2:] if len(wanted) < 2 else list(wanted)[-2:]
    begins, ends = [], []
    for size, stride, extent, more, out in zip(sizes, window.strides, window.extents, extra, wanted, strict=True):
        total = max((size - 1) * stride + more + extent - out, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return begins + ends


def _ceiling_pad(window: _Geometry, axis: int, size: int) -> int:
    """The padding at the end of a spatial axis that `ceil_mode` adds.

    A last window that would begin past the input and its first padding is dropped, as in onnxruntime and PyTorch.
    """
    stride, extent = window.strides[axis], window.extents[axis]
    padded = size + window.pads[axis] + window.pads[axis + 2]
    outputs = -(-(padded - extent) // stride) + 1
    if (outputs - 1) * stride >= size + window.pads[axis]:
        outputs -= 1
    return max((outputs - 1) * stride + extent - padded, 0)


def _pool(emit_2d: Callable[..., Any]) -> Converter:
    def convert(context: NodeContext) -> Any:
        if len(context.node.output) > 1 and context.node.output[1]:
            raise CannotConvert("the second output (indices) is not supported")
        rank = len(shape_of(context.input(0)))
        window = _geometry(context, context.attribute("kernel_shape", []), shape_of(context.input(0))[2:])
        data = _tall(context, context.input(0))
        ceiling = bool(context.attribute("ceil_mode", 0))
        extra = [_ceiling_pad(window, i, size) if ceiling else 0 for i, size in enumerate(shape_of(data)[2:])]
        settings: dict[str, Any] = {}
        if context.node.op_type == "AveragePool" and context.attribute("count_include_pad", 0):
            # Only here do the extra rows matter: they are not part of the padding that counts.
            if any(extra) and not all(extra):
                raise CannotConvert("it counts its padding and rounds up along one axis only")
            settings = {"count_include_pad": True, "ceil_mode": any(extra)}
            extra = [0, 0]
        top, left, bottom, right = window.pads
        result = context.emit(
            emit_2d(
                data,
                window.kernel,
                strides=window.strides,
                padding=[top, left, bottom + extra[0], right + extra[1]],
                dilation=window.dilations,
                **settings,
            )
        )
        return _flat_again(context, result, rank)

    return convert


def _global(reduce: Callable[..., Any]) -> Converter:
    def convert(context: NodeContext) -> Any:
        axes = list(range(2, len(shape_of(context.input(0)))))
        return context.emit(reduce(context.input(0), axes, keepdims=True))

    return convert


def _powers(context: NodeContext, data: Any) -> tuple[Any, int]:
    """|x| ** p, and p."""
    power = int(context.attribute("p", 2))
    if power == 2:
        return context.emit(relax.op.square(data)), power
    size = context.emit(relax.op.abs(data))
    return (size if power == 1 else context.emit(relax.op.power(size, context.number(float(power), data)))), power


def _root(context: NodeContext, total: Any, power: int) -> Any:
    if power == 1:
        return total
    return context.emit(relax.op.power(total, context.number(1.0 / power, total)))


def _lp_pool(context: NodeContext) -> Any:
    """The p-norm of each window: a mean of powers over all its elements, padding too, times their number."""

    def norms(data: Any, kernel: Sequence[int], **window: Any) -> Any:
        powers, power = _powers(context, data)
        means = context.emit(relax.op.nn.avg_pool2d(powers, kernel, **{**window, "count_include_pad": True}))
        total = context.emit(relax.op.multiply(means, context.number(float(math.prod(kernel)), data)))
        return _root(context, total, power)

    return _pool(norms)(context)


def _global_lp_pool(context: NodeContext) -> Any:
    data = context.required(0)
    powers, power = _powers(context, data)
    axes = list(range(2, len(shape_of(data))))
    return _root(context, context.emit(relax.op.sum(powers, axes, keepdims=True)), power)


WINDOW_CONVERTERS: Mapping[str, Converter] = {
    "AveragePool": _pool(relax.op.nn.avg_pool2d),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global(relax.op.mean),
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _global(relax.op.max),
    "LpPool": _lp_pool,
    "MaxPool": _pool(relax.op.nn.max_pool2d),
}
