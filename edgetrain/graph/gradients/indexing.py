"""Ops that read elements at places given as data: lookups, gathers and masks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import IRBuilder, dtype_of, relax, shape_of, te, tir_script, tirx
from edgetrain.graph.gradients.pointwise import number
from edgetrain.graph.gradients.rule import Backward, Expr, Gradients, Rule, emit_function, sum_to_shape
from edgetrain.graph.gradients.window import guarded


def _take(step: Backward) -> Gradients:
    """Scatters and adds: a test of every row against every index would cost rows × indices for an embedding."""
    data, indices = step.inputs
    shape = shape_of(data)
    axis = step.attributes.axis
    split = 0 if axis is None else int(axis) % len(shape)
    before = math.prod(shape[:split])
    rows = math.prod(shape) if axis is None else shape[split]
    after = 1 if axis is None else math.prod(shape[split + 1 :])
    count = math.prod(shape_of(indices))
    lead = _lead(before)
    flat_indices = step.emit(relax.op.reshape(indices, (count,)))
    flat_gradient = step.emit(relax.op.reshape(step.output_gradient, (*lead, count, after)))
    dtype = dtype_of(flat_gradient)
    function = scatter_add(
        before=before, count=count, after=after, rows=rows, dtype=dtype, index_dtype=dtype_of(indices)
    )
    operands, flat_shape = [flat_indices, flat_gradient], (*lead, rows, after)
    total = emit_function(step.builder, function, "scatter_add", operands, shape=flat_shape, dtype=dtype)
    # Nothing between the gradient of a plain table and its update: then both can become one kernel.
    return [total if flat_shape == shape else step.emit(relax.op.reshape(total, shape)), None]


def _lead(before: int) -> tuple[int, ...]:
    """The axes before those of rows: none where the table is looked up along its first axis."""
    return (before,) if before > 1 else ()


def scatter_add(*, before: int, count: int, after: int, rows: int, dtype: str, index_dtype: str) -> Any:
    """A TIR function: total[b, indices[k], a] += values[b, k, a], from zero. Where `before` is 1, there is no axis b.

    The axis k is opaque to schedules: two indices may be equal, so its iterations must not run at the same time.
    An index that is out of bounds meets the nearest row, as `take` reads it.
    """
    axis, lead = tir_script.axis, _lead(before)
    table, looked_up = _extents(*lead, rows, after), _extents(*lead, count, after)
    with IRBuilder() as builder:
        with tir_script.prim_func(is_private=True, s_tir=True):
            tir_script.func_name("scatter_add")
            tir_script.func_attr({"tirx.noalias": True})
            indices = tir_script.arg("indices", tir_script.buffer(_extents(count), index_dtype))
            values = tir_script.arg("values", tir_script.buffer(looked_up, dtype))
            total = tir_script.arg("total", tir_script.buffer(table, dtype))
            with tir_script.grid(*table) as loops, tir_script.sblock("zero"):
                place = axis.remap("S" * len(table), list(loops))
                tir_script.buffer_store(total, tirx.const(0, dtype), list(place))
            with tir_script.grid(*looked_up) as (*outer, which, inner), tir_script.sblock("add"):
                b = [axis.spatial(extent, loop) for extent, loop in zip(table[:-2], outer, strict=True)]
                a, k = axis.spatial(table[-1], inner), axis.opaque(looked_up[-2], which)
                last = tirx.const(rows - 1, index_dtype)
                row = tirx.max(tirx.min(indices[k], last), tirx.const(0, index_dtype))
                tir_script.buffer_store(total, total[*b, row, a] + values[*b, k, a], [*b, row, a])
        return builder.get()


def _extents(*extents: int) -> list[Any]:
    """As Relax counts, in 64 bits: TVM fuses two kernels only where what they share has a shape of one type."""
    return [tirx.IntImm("int64", extent) for extent in extents]


def _gather_elements(step: Backward) -> Gradients:
    """A sum over the gathered places with a test each: every element is written once, so threads never collide."""
    shape = shape_of(step.inputs[0])
    axis = int(step.attributes.axis) % len(shape)

    def gather_elements_gradient(indices: Any, dy: Any) -> Any:
        gathered = shape_of(indices)
        k = te.reduce_axis((0, gathered[axis]), "k")

        def element(*i: Any) -> Any:
            place = (*i[:axis], k, *i[axis + 1 :])
            index, here = indices[place], tirx.Cast(indices.dtype, i[axis])
            hit = tirx.any(index == here, index + shape[axis] == here)  # a negative index counts from the end
            value = tirx.Select(hit, dy[place], number(0.0, dy[place]))
            # The gathered tensor may be smaller than the data on the other axes too.
            guards = [v < gathered[a] for a, v in enumerate(i) if a != axis and gathered[a] < shape[a]]
            return te.sum(guarded(guards, value), axis=k)

        return te.compute(shape, element)

    return [step.emit_te(gather_elements_gradient, step.inputs[1], step.output_gradient), None]


def _where(step: Backward) -> Gradients:
    condition, dy = step.inputs[0], step.output_gradient
    zero = relax.const(0.0, dtype_of(dy))
    results: list[Expr | None] = [None, None, None]
    for i, pair in ((1, (dy, zero)), (2, (zero, dy))):
        if step.wanted[i]:
            results[i] = sum_to_shape(step, step.emit(relax.op.where(condition, *pair)), step.inputs[i])
    return results


INDEXING_RULES: Mapping[str, Rule] = {
    "relax.gather_elements": Rule(backward=_gather_elements),
    "relax.take": Rule(backward=_take),
    "relax.where": Rule(backward=_where),
}
