"""Ops that move elements: views, joins, slices, padding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from edgetrain._tvm import relax, runtime, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext


def _flatten(context: NodeContext) -> Any:
    shape = shape_of(context.input(0))
    axis = context.attribute("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return context.emit(relax.op.reshape(context.input(0), (math.prod(shape[:axis]), math.prod(shape[axis:]))))


def _reshape(context: NodeContext) -> Any:
    target = context.known_input(1)
    if target is None:
        raise CannotConvert("its shape is computed from data while the model runs")
    shape = shape_of(context.input(0))
    dims = [int(d) for d in target]
    if not context.attribute("allowzero", 0):
        dims = [shape[i] if d == 0 else d for i, d in enumerate(dims)]
    if context.rebound_batch is not None and dims[:1] == [1] and shape[:1] == (context.rebound_batch,):
        dims = _with_batch(dims, shape)
    if -1 in dims:
        rest = math.prod(d for d in dims if d != -1)
        dims[dims.index(-1)] = math.prod(shape) // max(rest, 1)
    if math.prod(dims) != math.prod(shape):
        raise CannotConvert(f"it reshapes {list(shape)} to {dims}; the batch may be fixed inside the model")
    return context.emit(relax.op.reshape(context.input(0), dims))


def _with_batch(dims: list[int], shape: tuple[int, ...]) -> list[int]:
    """`dims` with its leading 1 as the batch, where the file was exported for a batch of 1 and means that."""
    is_whole = -1 not in dims and math.prod(dims) == math.prod(shape)
    return dims if is_whole else [shape[0], *dims[1:]]


def _transpose(context: NodeContext) -> Any:
    return context.emit(relax.op.permute_dims(context.input(0), context.attribute("perm", None)))


def _squeeze(context: NodeContext) -> Any:
    axes = context.integers_or_attribute(1, "axes")
    return context.emit(relax.op.squeeze(context.input(0), axes))


def _unsqueeze(context: NodeContext) -> Any:
    axes = context.integers_or_attribute(1, "axes") or []
    return context.emit(relax.op.expand_dims(context.input(0), axes))


def _concat(context: NodeContext) -> Any:
    if len(context.inputs) == 1:
        return context.input(0)
    return context.emit(relax.op.concat(list(context.inputs), context.attribute("axis", 0)))


def _split(context: NodeContext) -> Any:
    data = context.input(0)
    axis = context.attribute("axis", 0) % len(shape_of(data))
    sizes = context.integers_or_attribute(1, "split")
    if sizes is None:
        count = len(context.node.output)
        chunk = -(-shape_of(data)[axis] // count)  # the last part may be smaller
        sizes = [min(chunk, shape_of(data)[axis] - i * chunk) for i in range(count)]
    if len(sizes) == 1:
        return [data]
    if min(sizes) <= 0 or sum(sizes) != shape_of(data)[axis]:
        raise CannotConvert(f"parts of {sizes} do not make up {shape_of(data)[axis]} elements")
    parts = context.emit(relax.op.split(data, [int(s) for s in np.cumsum(sizes[:-1])], axis))
    return [context.emit(relax.TupleGetItem(parts, i)) for i in range(len(sizes))]


def slice_axis(context: NodeContext, data: Any, axis: int, start: int, count: int, step: int = 1) -> Any:
    """`count` elements from `start`; the end is written so that counting down to 0 is not taken for −1."""
    end = start + step * (count - 1) + (1 if step > 0 else -1)
    end = end - shape_of(data)[axis] if end < 0 else end
    return context.emit(relax.op.strided_slice(data, [axis], [start], [end], [step]))


def _slice(context: NodeContext) -> Any:
    data = context.input(0)
    starts, ends = context.integers_or_attribute(1, "starts"), context.integers_or_attribute(2, "ends")
    if starts is None or ends is None:
        raise CannotConvert("it has no starts or ends")
    axes = context.integers_or_attribute(3, "axes") or list(range(len(starts)))
    steps = context.integers(4, "steps") or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis % len(shape_of(data))
        places = range(shape_of(data)[axis])[start:end:step]  # Python's rules are ONNX's
        if not places:
            raise CannotConvert(f"it selects nothing along axis {axis}")
        if places != range(shape_of(data)[axis]):
            data = slice_axis(context, data, axis, places.start, len(places), step)
    return data


_LONGEST_PADDING = 1 << 20  # each element is a number here; a damaged file can ask for more than there is memory
_PAD_MODES: Mapping[str, str] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}  # ONNX's name -> NumPy's


def _pad(context: NodeContext) -> Any:
    data = context.input(0)
    rank = len(shape_of(data))
    given = context.integers_or_attribute(1, "pads") or []
    axes = context.integers(3, "axes") or list(range(rank))
    begins, ends = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        begins[axis % rank], ends[axis % rank] = given[i], given[i + len(axes)]
    for axis in range(rank):  # a negative pad crops
        size = shape_of(data)[axis]
        if min(begins[axis], ends[axis]) < 0:
            first = max(-begins[axis], 0)
            data = slice_axis(context, data, axis, first, size - first - max(-ends[axis], 0))
            begins[axis], ends[axis] = max(begins[axis], 0), max(ends[axis], 0)
    mode = context.attribute("mode", "constant")
    if mode == "constant":
        return _pad_constant(context, data, begins, ends)
    if mode not in _PAD_MODES:
        raise CannotConvert(f"padding mode `{mode}` is not known")
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if begin or end:
            if begin + end > _LONGEST_PADDING:
                raise CannotConvert(f"it pads axis {axis} by {begin + end:,} elements")
            places = np.pad(np.arange(shape_of(data)[axis]), (begin, end), mode=_PAD_MODES[mode])  # type: ignore[call-overload]
            data = context.emit(
                relax.op.take(data, relax.const(runtime.tensor(places.astype(np.int64))), axis, mode="clip")
            )
    return data


def _pad_constant(context: NodeContext, data: Any, begins: Sequence[int], ends: Sequence[int]) -> Any:
    value = context.known_input(2)
    if value is None and context.has(2):
        raise CannotConvert("its padding value depends on data; it must be a constant")
    if not any((*begins, *ends)):
        return data
    widths = [w for pair in zip(begins, ends, strict=True) for w in pair]
    fill = value.item() if value is not None else context.attribute("value", 0.0)  # an attribute before opset 11
    return context.emit(relax.op.nn.pad(data, widths, pad_value=float(fill)))


def _expand(context: NodeContext) -> Any:
    target = context.integers(1, "dimensions") or []
    shape = np.broadcast_shapes(shape_of(context.input(0)), tuple(target))
    return context.emit(relax.op.broadcast_to(context.input(0), shape))


def _tile(context: NodeContext) -> Any:
    return context.emit(relax.op.tile(context.input(0), context.integers(1, "repeats") or []))


def _depth_to_space(context: NodeContext) -> Any:
    n, c, h, w = shape_of(context.input(0))
    b = int(context.attribute("blocksize", 1))
    depth = c // (b * b)
    column_first = context.attribute("mode", "DCR") == "CRD"
    view, order = (
        ((n, depth, b, b, h, w), [0, 1, 4, 2, 5, 3]) if column_first else ((n, b, b, depth, h, w), [0, 3, 4, 1, 5, 2])
    )
    blocks = context.emit(relax.op.permute_dims(context.emit(relax.op.reshape(context.input(0), view)), order))
    return context.emit(relax.op.reshape(blocks, (n, depth, h * b, w * b)))


def _space_to_depth(context: NodeContext) -> Any:
    n, c, h, w = shape_of(context.input(0))
    b = int(context.attribute("blocksize", 1))
    view = context.emit(relax.op.reshape(context.input(0), (n, c, h // b, b, w // b, b)))
    blocks = context.emit(relax.op.permute_dims(view, [0, 3, 5, 1, 2, 4]))
    return context.emit(relax.op.reshape(blocks, (n, c * b * b, h // b, w // b)))


def _trilu(context: NodeContext) -> Any:
    diagonal = (context.integers(1, "diagonal") or [0])[0]
    keep = relax.op.triu if context.attribute("upper", 1) else relax.op.tril
    return context.emit(keep(context.input(0), diagonal))


def _constant_of_shape(context: NodeContext) -> Any:
    shape = context.integers(0, "dimensions") or []
    value = context.attribute("value", None)
    array = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    dtype = "float32" if str(array.dtype) in ("float16", "bfloat16") else str(array.dtype)
    return context.emit(relax.op.full(shape, relax.const(array.reshape(-1)[0].item(), dtype), dtype))


def _reverse_sequence(context: NodeContext) -> Any:
    """The first `length` elements of each row along the time axis in reverse order, the rest as they are."""
    data, lengths = context.required(0), context.known_input(1)
    time, rows = context.attribute("time_axis", 0), context.attribute("batch_axis", 1)
    shape = shape_of(data)
    if sorted((time, rows)) != [0, 1]:
        raise CannotConvert("its time and batch axes must be the first two")
    if lengths is not None and bool(np.all(lengths == shape[time])):
        return context.emit(relax.op.flip(data, time))
    places = relax.const(runtime.tensor(np.arange(shape[time], dtype=np.int64).reshape(-1, 1)))
    ends = context.emit(relax.op.reshape(context.emit(relax.op.astype(context.required(1), "int64")), (1, shape[rows])))
    mirrored = context.emit(relax.op.subtract(context.emit(relax.op.subtract(ends, places)), relax.const(1, "int64")))
    chosen = context.emit(relax.op.where(context.emit(relax.op.less(places, ends)), mirrored, places))
    chosen = chosen if time == 0 else context.emit(relax.op.permute_dims(chosen, [1, 0]))
    thin = context.emit(relax.op.reshape(chosen, (*shape[:2], *[1] * (len(shape) - 2))))
    return context.emit(relax.op.gather_elements(data, context.emit(relax.op.broadcast_to(thin, shape)), time))


LAYOUT_CONVERTERS: Mapping[str, Converter] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
