"""Lookups and masks. A negative index counts from the end, in constants and in data.

Lookups clip (`mode="clip"`): an index out of bounds in the data must not read or, backwards, write foreign memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
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
    size = relax.const(shape_of(context.input(0))[axis], dtype_of(indices))
    below = context.emit(relax.op.less(indices, relax.const(0, dtype_of(indices))))
    return context.emit(relax.op.where(below, context.emit(relax.op.add(indices, size)), indices))


def _gather_elements(context: NodeContext) -> Any:
    axis = context.attribute("axis", 0) % len(shape_of(context.input(0)))
    return context.emit(relax.op.gather_elements(context.input(0), _counted_from_start(context, axis), axis))


_SCATTERS: Mapping[str, str] = {"none": "update", "add": "add"}  # ONNX's name -> Relax's


def _scatter_elements(context: NodeContext) -> Any:
    reduction = context.attribute("reduction", "none")
    if reduction not in _SCATTERS:
        raise CannotConvert(f"reduction `{reduction}` is not supported, only {', '.join(_SCATTERS)}")
    axis = context.attribute("axis", 0) % len(shape_of(context.required(0)))
    return context.emit(relax.op.scatter_elements(*context.inputs, axis=axis, reduction=_SCATTERS[reduction]))


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
    "OneHot": _one_hot,
    "Scatter": _scatter_elements,  # its name before opset 11
    "ScatterElements": _scatter_elements,
    "Where": _where,
}
