"""Reductions. Where several elements tie for a maximum, they share the gradient evenly, as in PyTorch's `amax`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import dtype_of, relax, shape_of, te, tirx
from edgetrain.graph.gradients.pointwise import number
from edgetrain.graph.gradients.rule import Backward, Done, Expr, Forward, Gradients, Rule


def _axes(step: Backward) -> tuple[int, ...]:
    rank = len(shape_of(step.inputs[0]))
    axes = step.attributes.axis
    return tuple(range(rank)) if axes is None else tuple(int(a) % rank for a in axes)


def _kept_shape(step: Backward) -> tuple[int, ...]:
    """The result's shape with the reduced axes left in place."""
    axes = _axes(step)
    return tuple(1 if i in axes else extent for i, extent in enumerate(shape_of(step.inputs[0])))


def _with_axes(step: Backward, expr: Expr) -> Expr:
    kept = _kept_shape(step)
    return expr if shape_of(expr) == kept else step.emit(relax.op.reshape(expr, kept))


def _count(step: Backward) -> int:
    return math.prod(shape_of(step.inputs[0])[a] for a in _axes(step))


def _spread(step: Backward, scale: float) -> Gradients:
    scaled = step.output_gradient
    if scale != 1.0:
        scaled = step.emit(relax.op.multiply(scaled, relax.const(scale, str(scaled.ty.dtype))))
    return [step.emit(relax.op.broadcast_to(_with_axes(step, scaled), shape_of(step.inputs[0])))]


def _sum(step: Backward) -> Gradients:
    return _spread(step, 1.0)


def _mean(step: Backward) -> Gradients:
    return _spread(step, 1.0 / _count(step))


def _reduced(index: tuple[Any, ...], axes: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(0 if a in axes else i for a, i in enumerate(index))


def _extremum(step: Backward) -> Gradients:
    axes, kept = _axes(step), _kept_shape(step)

    def extremum_count(x: Any, y: Any) -> Any:
        loops = {a: te.reduce_axis((0, shape_of(x)[a]), f"a{a}") for a in axes}

        def element(*i: Any) -> Any:
            here = tuple(loops.get(a, v) for a, v in enumerate(i))
            hit = tirx.Select(x[here] == y[i], number(1.0, y[i]), number(0.0, y[i]))
            return te.sum(hit, axis=list(loops.values()))

        return te.compute(kept, element)

    def extremum_gradient(x: Any, y: Any, shared: Any) -> Any:
        def element(*i: Any) -> Any:
            j = _reduced(i, axes)
            return tirx.Select(x[i] == y[j], shared[j], number(0.0, shared[j]))

        return te.compute(x.shape, element)

    x, y = step.inputs[0], _with_axes(step, step.outputs[0])
    count = step.emit_te(extremum_count, x, y)
    shared = step.emit(relax.op.divide(_with_axes(step, step.output_gradient), count))
    return [step.emit_te(extremum_gradient, x, y, shared)]


def _prod(step: Backward) -> Gradients:
    """dY · ∏ of the others, each product taken anew: dividing Y by X fails at 0."""
    axes = _axes(step)

    def product_gradient(x: Any, dy: Any) -> Any:
        loops = {a: te.reduce_axis((0, shape_of(x)[a]), f"a{a}") for a in axes}
        multiply = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="product")

        def others(*i: Any) -> Any:
            here = tuple(loops.get(a, v) for a, v in enumerate(i))
            same = tirx.all(*(loops[a] == i[a] for a in axes))
            return multiply(tirx.Select(same, number(1.0, x[here]), x[here]), axis=list(loops.values()))

        rest = te.compute(x.shape, others, name="product_of_others")
        return te.compute(x.shape, lambda *i: rest[i] * dy[_reduced(i, axes)])

    return [step.emit_te(product_gradient, step.inputs[0], _with_axes(step, step.output_gradient))]


def _centred(step: Backward) -> Expr:
    x = step.inputs[0]
    return step.emit(relax.op.subtract(x, step.emit(relax.op.mean(x, list(_axes(step)), keepdims=True))))


def _variance(step: Backward) -> Gradients:
    """2 · (X − mean) / n · dY"""
    scale = relax.const(2.0 / _count(step), str(step.output_gradient.ty.dtype))
    scaled = step.emit(relax.op.multiply(_with_axes(step, step.output_gradient), scale))
    return [step.emit(relax.op.multiply(_centred(step), scaled))]


def _std(step: Backward) -> Gradients:
    """(X − mean) / (n · Y) · dY"""
    share = step.emit(relax.op.divide(step.output_gradient, step.outputs[0]))
    scale = relax.const(1.0 / _count(step), str(share.ty.dtype))
    scaled = step.emit(relax.op.multiply(_with_axes(step, share), scale))
    return [step.emit(relax.op.multiply(_centred(step), scaled))]


def _cumsum_axis(attributes: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The shape to sum along and the axis: without an axis, the flattened tensor."""
    if attributes.axis is None:
        return (math.prod(shape),), 0
    return shape, int(attributes.axis) % len(shape)


def prefix_sum(x: Any, *, view: tuple[int, ...], axis: int, exclusive: bool, backwards: bool) -> Any:
    """Each element the sum of those up to it (or from it on). Quadratic in the axis, but every element on its own."""
    k = te.reduce_axis((0, view[axis]), "k")

    def element(*i: Any) -> Any:
        first, last = (i[axis], k) if backwards else (k, i[axis])
        counts = first < last if exclusive else first <= last
        value = x[(*i[:axis], k, *i[axis + 1 :])]
        return te.sum(tirx.Select(counts, value, number(0, value)), axis=k)

    return te.compute(view, element, name="prefix_sum")


def _cumsum_forward(step: Forward) -> Done:
    data = step.inputs[0]
    view, axis = _cumsum_axis(step.attributes, shape_of(data))
    flat = data if view == shape_of(data) else step.builder.emit(relax.op.reshape(data, view))
    wanted = step.attributes.dtype
    if wanted is not None and str(wanted) not in ("", "void", dtype_of(data)):
        flat = step.builder.emit(relax.op.astype(flat, wanted))
    exclusive = bool(step.attributes.exclusive)
    return Done(outputs=(step.emit_te(prefix_sum, flat, view=view, axis=axis, exclusive=exclusive, backwards=False),))


def _cumsum(step: Backward) -> Gradients:
    """Each input counts in every later output: the sum of dY from there on."""
    shape = shape_of(step.inputs[0])
    view, axis = _cumsum_axis(step.attributes, shape)
    exclusive = bool(step.attributes.exclusive)
    total = step.emit_te(prefix_sum, step.output_gradient, view=view, axis=axis, exclusive=exclusive, backwards=True)
    return [total if view == shape else step.emit(relax.op.reshape(total, shape))]


REDUCTION_RULES: Mapping[str, Rule] = {
    "relax.cumsum": Rule(forward=_cumsum_forward, backward=_cumsum),
    "relax.max": Rule(backward=_extremum),
    "relax.mean": Rule(backward=_mean),
    "relax.min": Rule(backward=_extremum),
    "relax.prod": Rule(backward=_prod),
    "relax.std": Rule(backward=_std),
    "relax.sum": Rule(backward=_sum),
    "relax.variance": Rule(backward=_variance),
}
