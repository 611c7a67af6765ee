"""Lookups and masks. A negative index counts from the end, in constants and in data.

An index that comes from an input of the model is checked before the model runs (`require_index`). Lookups clip all the
same (`mode="clip"`): one that the model computes must not read or, backwards, write foreign memory either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgetrain._tvm import Constant, dtype_of, relax, runtime, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext
from edgetrain.model.converters.layout import slice_axis
from edgetrain.model.model import Array


def _gather(context: NodeContext) -> Any:
    data, indices = context.input(0), context.known_input(1)
    axis = context.attribute("axis", 0) % len(shape_of(data))
    if indices is None:
        return context.emit(relax.op.take(data, _counted_from_start(context, axis), axis, mode="clip"))
    size = shape_of(data)[axis]
    if np.any(indices < -size) or np.any(indices >= size):
        raise CannotConvert(f"an index is outside of the {size} elements along axis {axis}")
    return _gather_known(context, data, indices % size, axis)


def _gather_known(context: NodeContext, data: Any, indices: Array, axis: int) -> Any:
    """Evenly spaced places are a slice, whose gradient is one pass instead of a scatter."""
    places = [int(i) for i in indices.reshape(-1)]
    step = places[1] - places[0] if len(places) > 1 else 1
    if not places or step == 0 or places != list(range(places[0], places[0] + step * len(places), step)):
        return context.emit(
            relax.op.take(data, relax.const(runtime.tensor(indices.astype(np.int64))), axis, mode="clip")
        )
    shape = shape_of(data)
    if places != list(range(shape[axis])):
        data = slice_axis(context, data, axis, places[0], len(places), step)
    target = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    return data if shape_of(data) == target else context.emit(relax.op.reshape(data, target))


def _counted_from_start(context: NodeContext, axis: int) -> Any:
    indices = context.input(1)
    context.require_index(1, shape_of(context.input(0))[axis])
    size = relax.const(shape_of(context.input(0))[axis], dtype_of(indices))
    below = context.emit(relax.op.less(indices, relax.const(0, dtype_of(indices))))
    return context.emit(relax.op.where(below, context.emit(relax.op.add(indices, size)), indices))


def _gather_elements(context: NodeContext) -> Any:
    axis = context.attribute("axis", 0) % len(shape_of(context.input(0)))
    return context.emit(relax.op.gather_elements(context.input(0), _counted_from_start(context, axis), axis))


def _gather_nd(context: NodeContext) -> Any:
    """One lookup of rows: each tuple of indices is the number of a row of the data with those axes joined."""
    data, indices = context.required(0), context.required(1)
    shape, places, lead = shape_of(data), shape_of(indices), int(context.attribute("batch_dims", 0))
    depth = lead + places[-1]
    if lead < depth <= len(shape):
        context.require_index(1, max(shape[lead:depth]))  # the parts of a tuple share one tensor: what any may be
    rows = row_numbers(context.emit, indices, shape[lead:depth])
    if lead:
        offsets = np.arange(math.prod(shape[:lead]), dtype=dtype_of(rows)) * math.prod(shape[lead:depth])
        by_batch = offsets.reshape(*shape[:lead], *[1] * (len(places) - 1 - lead))
        rows = context.emit(relax.op.add(rows, relax.const(runtime.tensor(by_batch))))
    flat = context.emit(relax.op.reshape(data, (math.prod(shape[:depth]), *shape[depth:])))
    return context.emit(relax.op.take(flat, rows, 0, mode="clip"))


def row_numbers(emit: Callable[[Any], Any], indices: Any, sizes: Sequence[int]) -> Any:
    """The tuples along the last axis of `indices`, each as one number into the elements of a tensor of `sizes`.

    A part of a tuple that is negative counts from the end; one that is out of bounds is the nearest that is not, so
    that no data can make a kernel leave its memory.
    """
    shape, dtype = shape_of(indices), dtype_of(indices)
    if len(sizes) != shape[-1]:
        raise CannotConvert(f"its indices have {shape[-1]} parts for {len(sizes)} axes")
    if isinstance(indices, Constant):
        return relax.const(runtime.tensor(_known_rows(indices.value.numpy(), sizes)))
    zero, extents = (relax.const(runtime.tensor(np.array(v, dtype))) for v in ([0] * len(sizes), list(sizes)))
    negative = emit(relax.op.less(indices, zero))
    counted = emit(relax.op.where(negative, emit(relax.op.add(indices, extents)), indices))
    last = relax.const(runtime.tensor(np.array(sizes, dtype) - 1))
    inside = emit(relax.op.maximum(emit(relax.op.minimum(counted, last)), zero))
    strides = np.array([math.prod(sizes[i + 1 :]) for i in range(len(sizes))], dtype)
    weighted = emit(relax.op.multiply(inside, relax.const(runtime.tensor(strides))))
    return emit(relax.op.sum(weighted, [-1]))


def _known_rows(indices: Array, sizes: Sequence[int]) -> Array:
    counted = np.where(indices < 0, indices + np.array(sizes), indices)
    parts = np.moveaxis(np.clip(counted, 0, np.array(sizes) - 1), -1, 0)
    return np.asarray(np.ravel_multi_index(tuple(parts), tuple(sizes))).astype(indices.dtype)


_SCATTERS: Mapping[str, str] = {"none": "update", "add": "add"}  # ONNX's name -> Relax's


def _scatter_elements(context: NodeContext) -> Any:
    reduction = context.attribute("reduction", "none")
    if reduction not in _SCATTERS:
        raise CannotConvert(f"reduction `{reduction}` is not supported, only {', '.join(_SCATTERS)}")
    axis = context.attribute("axis", 0) % len(shape_of(context.required(0)))
    context.require_index(1, shape_of(context.required(0))[axis])
    return context.emit(relax.op.scatter_elements(*context.inputs, axis=axis, reduction=_SCATTERS[reduction]))


def _scatter_nd(context: NodeContext) -> Any:
    reduction = context.attribute("reduction", "none")
    if reduction not in _SCATTERS:
        raise CannotConvert(f"reduction `{reduction}` is not supported, only {', '.join(_SCATTERS)}")
    return context.emit(relax.op.scatter_nd(*context.inputs, reduction=_SCATTERS[reduction]))


def _one_hot(context: NodeContext) -> Any:
    """A comparison with every class; an index out of bounds meets none, a negative one counts from the end."""
    indices, depths, values = context.required(0), context.integers(1, "classes"), context.known_input(2)
    if not depths or depths[0] <= 0 or values is None or values.size != 2:
        raise CannotConvert("its classes and its two values must be constants")
    off, on = (relax.const(v.item(), str(values.dtype)) for v in values.reshape(-1))
    axis = context.attribute("axis", -1) % (len(shape_of(indices)) + 1)
    classes = np.arange(depths[0], dtype=dtype_of(indices)).reshape([-1, *[1] * (len(shape_of(indices)) - axis)])
    places = context.emit(relax.op.expand_dims(indices, [axis]))
    below = context.emit(relax.op.less(places, relax.const(0, dtype_of(indices))))
    counted = context.emit(relax.op.add(places, relax.const(depths[0], dtype_of(indices))))
    chosen = context.emit(relax.op.where(below, counted, places))
    hit = context.emit(relax.op.equal(chosen, relax.const(runtime.tensor(classes))))
    return context.emit(relax.op.where(hit, on, off))


def _where(context: NodeContext) -> Any:
    return context.emit(relax.op.where(*context.inputs))


INDEXING_CONVERTERS: Mapping[str, Converter] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Scatter": _scatter_elements,  # its name before opset 11
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Where": _where,
}
