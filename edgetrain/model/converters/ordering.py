"""Sorting, by counting: an element's place is the number of those before it. No sort routine is needed on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import relax, shape_of, te, tirx
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext

MAXIMUM_SORTED = 1 << 14  # the comparisons are the square of it


def _top_k(context: NodeContext) -> list[Any]:
    """The values are gathered by their indices, which gives them the gradient of a lookup."""
    data = context.required(0)
    shape = shape_of(data)
    counts = context.integers_or_attribute(1, "k") if context.has(1) else [int(context.attribute("k", 0))]
    axis, largest = context.attribute("axis", -1) % len(shape), bool(context.attribute("largest", 1))
    count = (counts or [0])[0]
    if not 0 < count <= shape[axis]:
        raise CannotConvert(f"it takes {count} of {shape[axis]} elements")
    if shape[axis] > MAXIMUM_SORTED:
        raise CannotConvert(f"it orders {shape[axis]} elements, more than {MAXIMUM_SORTED}")

    def sorted_places(x: Any) -> Any:
        return _sorted_places(x, axis=axis, count=count, largest=largest)

    indices = context.builder.emit_te(sorted_places, data, primfunc_name_hint="sorted_places")
    return [context.emit(relax.op.gather_elements(data, indices, axis)), indices]


def _sorted_places(x: Any, *, axis: int, count: int, largest: bool) -> Any:
    """Where the `count` first elements in order are; of equal ones the one with the lower index is first."""
    shape = shape_of(x)
    other = te.reduce_axis((0, shape[axis]), "other")
    which = te.reduce_axis((0, shape[axis]), "which")
    one, zero = tirx.const(1, "int64"), tirx.const(0, "int64")

    def place(*i: Any) -> Any:
        mine, theirs = x[i], x[(*i[:axis], other, *i[axis + 1 :])]
        better = theirs > mine if largest else theirs < mine
        tied = tirx.all(theirs == mine, other < i[axis])
        return te.sum(tirx.Select(tirx.any(better, tied), one, zero), axis=other)

    places = te.compute(shape, place, name="places")

    def index(*i: Any) -> Any:
        here = places[(*i[:axis], which, *i[axis + 1 :])] == tirx.Cast("int64", i[axis])
        return te.sum(tirx.Select(here, tirx.Cast("int64", which), zero), axis=which)

    return te.compute((*shape[:axis], count, *shape[axis + 1 :]), index, name="sorted_places")


ORDERING_CONVERTERS: Mapping[str, Converter] = {"TopK": _top_k}
