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


def _where(context: NodeContext) -> Any:
    return context.emit(relax.op.where(*context.inputs))


INDEXING_CONVERTERS: Mapping[str, Converter] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Where": _where,
}
