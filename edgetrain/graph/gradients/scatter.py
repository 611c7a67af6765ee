"""Scatter along one axis. Every element looks for its updates, so no two threads write to one place.

The stock kernel holds a parallel scope that has no place in a kernel of ours; this one costs updates × elements of the
axis instead, which the orderings and masks that exporters write with it are small enough for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import dtype_of, relax, shape_of, te, tirx
from edgetrain.graph.gradients.pointwise import number
from edgetrain.graph.gradients.rule import Backward, Done, Forward, Gradients, Rule
from edgetrain.graph.gradients.window import guarded


def _met(indices: Any, values: Any | None, shape: tuple[int, ...], axis: int, dtype: str) -> Any:
    """For each element of `shape`: the sum of the values that meet it, or how many there are."""
    given = shape_of(indices)
    k = te.reduce_axis((0, given[axis]), "k")

    def element(*i: Any) -> Any:
        place = (*i[:axis], k, *i[axis + 1 :])
        index, here = indices[place], tirx.Cast(indices.dtype, i[axis])
        hit = tirx.any(index == here, index + shape[axis] == here)  # a negative index counts from the end
        value = values[place] if values is not None else tirx.const(1, dtype)
        # The updates may be smaller than the data on the other axes too.
        guards = [v < given[a] for a, v in enumerate(i) if a != axis and given[a] < shape[a]]
        return te.sum(guarded(guards, tirx.Select(hit, value, tirx.const(0, dtype))), axis=k)

    return te.compute(shape, element, name="met")


def scatter_elements(data: Any, indices: Any, updates: Any, *, axis: int, adds: bool) -> Any:
    """`data` with `updates` at their places, or added to them. Of two updates of one place none may be relied on."""
    shape = shape_of(data)
    total = _met(indices, updates, shape, axis, str(updates.dtype))
    if adds:
        return te.compute(shape, lambda *i: data[i] + total[i], name="scatter_elements")
    count = _met(indices, None, shape, axis, "int32")
    return te.compute(shape, lambda *i: tirx.Select(count[i] > 0, total[i], data[i]), name="scatter_elements")


def _axis(attributes: Any, shape: tuple[int, ...]) -> int:
    return int(attributes.axis) % len(shape)


def _adds(attributes: Any) -> bool:
    return str(attributes.reduction) == "add"


def _forward(step: Forward) -> Done:
    axis = _axis(step.attributes, shape_of(step.inputs[0]))
    return Done(outputs=(step.emit_te(scatter_elements, *step.inputs, axis=axis, adds=_adds(step.attributes)),))


def _backward(step: Backward) -> Gradients:
    """An update's gradient is that of its place; the data's is that of what no update replaced."""
    data, indices, _ = step.inputs
    shape, dy = shape_of(data), step.output_gradient
    axis = _axis(step.attributes, shape)

    def kept_gradient(places: Any, gradient: Any) -> Any:
        count = _met(places, None, shape, axis, "int32")
        return te.compute(shape, lambda *i: tirx.Select(count[i] > 0, number(0.0, gradient[i]), gradient[i]))

    data_gradient = updates_gradient = None
    if step.wanted[0]:
        data_gradient = dy if _adds(step.attributes) else step.emit_te(kept_gradient, indices, dy)
    if step.wanted[2]:
        updates_gradient = step.emit(relax.op.gather_elements(dy, _from_start(step, indices, shape[axis]), axis))
    return [data_gradient, None, updates_gradient]


def _from_start(step: Backward, indices: Any, size: int) -> Any:
    zero, whole = (relax.const(v, dtype_of(indices)) for v in (0, size))
    return step.emit(
        relax.op.where(step.emit(relax.op.less(indices, zero)), step.emit(relax.op.add(indices, whole)), indices)
    )


SCATTER_RULES: Mapping[str, Rule] = {"relax.scatter_elements": Rule(forward=_forward, backward=_backward)}
