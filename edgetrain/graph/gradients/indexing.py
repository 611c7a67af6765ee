"""Ops that read elements at places given as data: lookups, gathers and masks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import (
    IRBuilder,
    buffer_proxy,
    dtype_of,
    relax,
    shape_of,
    te,
    tir_script,
    tirx,
)
from edgetrain.graph.gradients.pointwise import number
from edgetrain.graph.gradients.rule import Backward, Expr, Gradients, Rule, sum_to_shape
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
    flat_indices = step.emit(relax.op.reshape(indices, (count,)))
    flat_gradient = step.emit(relax.op.reshape(step.output_gradient, (before, count, after)))
    total = step.emit_te(scatter_add, flat_indices, flat_gradient, rows=rows)
    return [step.emit(relax.op.reshape(total, shape)), None]


def scatter_add(indices: Any, values: Any, *, rows: int) -> Any:
    """total[b, indices[k], a] += values[b, k, a], from zero. One thread: two indices may be equal."""
    before, count, after = shape_of(values)

    def body(inputs: Any, outputs: Any) -> Any:
        places, added, total = (buffer_proxy(b) for b in (inputs[0], inputs[1], outputs[0]))
        with IRBuilder() as builder:
            with tir_script.seq_scope():
                with tir_script.serial(before * rows * after) as i:
                    total[i] = tirx.const(0, str(values.dtype))
                with tir_script.serial(before) as b, tir_script.serial(count) as k, tir_script.serial(after) as a:
                    target = (b * rows + tirx.Cast("int32", places[k])) * after + a
                    total[target] = total[target] + added[(b * count + k) * after + a]
            return builder.get()

    return te.extern([(before, rows, after)], [indices, values], body, dtype=[str(values.dtype)], name="scatter_add")


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
