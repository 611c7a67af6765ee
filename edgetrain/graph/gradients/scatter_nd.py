"""ScatterND: rows of updates written to, or added to, rows of the data.

A tuple of indices is the number of one row (`row_numbers`), so what is left is a walk over the updates in order. The
walk is sequential, unlike `scatter_elements`: two updates may meet one row, and masks written this way have as many
updates as elements, where a test of each against each would take their product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import IRBuilder, dtype_of, relax, shape_of, tir_script
from edgetrain.graph.gradients.rule import Backward, Done, Expr, Forward, Gradients, Rule, emit_function
from edgetrain.model.converters.indexing import row_numbers


def scatter_rows(*, rows: int, count: int, width: int, dtype: str, index_dtype: str, adds: bool) -> Any:
    """A TIR function: written = data, then written[places[k], a] = updates[k, a] (or +=) for each k in order.

    `places` must be inside of `rows`. The axis k is opaque to schedules: its iterations must not run at the same time.
    """
    with IRBuilder() as builder:
        with tir_script.prim_func(is_private=True, s_tir=True):
            tir_script.func_name("scatter_rows")
            tir_script.func_attr({"tirx.noalias": True})
            data = tir_script.arg("data", tir_script.buffer((rows, width), dtype))
            places = tir_script.arg("places", tir_script.buffer((count,), index_dtype))
            updates = tir_script.arg("updates", tir_script.buffer((count, width), dtype))
            written = tir_script.arg("written", tir_script.buffer((rows, width), dtype))
            with tir_script.grid(rows, width) as loops, tir_script.sblock("copy"):
                r, a = tir_script.axis.remap("SS", list(loops))
                tir_script.buffer_store(written, data[r, a], [r, a])
            with tir_script.grid(count, width) as (which, inner), tir_script.sblock("scatter"):
                a = tir_script.axis.spatial(width, inner)
                k = tir_script.axis.opaque(count, which)
                row = places[k]
                value = written[row, a] + updates[k, a] if adds else updates[k, a]
                tir_script.buffer_store(written, value, [row, a])
        return builder.get()


def _scattered(builder: Any, data: Expr, places: Expr, updates: Expr, *, depth: int, adds: bool) -> Expr:
    """`places` are numbers of rows of `data` with its first `depth` axes joined; `updates` has a row for each."""
    shape, count = shape_of(data), math.prod(shape_of(places))
    rows, width, dtype = math.prod(shape[:depth]), math.prod(shape[depth:]), dtype_of(data)
    function = scatter_rows(rows=rows, count=count, width=width, dtype=dtype, index_dtype=dtype_of(places), adds=adds)
    views = ((data, (rows, width)), (places, (count,)), (updates, (count, width)))
    operands = [builder.emit(relax.op.reshape(value, view)) for value, view in views]
    flat = emit_function(builder, function, "scatter_rows", operands, shape=(rows, width), dtype=dtype)
    return builder.emit(relax.op.reshape(flat, shape))


def _adds(attributes: Any) -> bool:
    return str(attributes.reduction) == "add"


def _depth(indices: Expr) -> int:
    return int(shape_of(indices)[-1])


def _forward(step: Forward) -> Done:
    data, indices, updates = step.inputs
    depth = _depth(indices)
    places = row_numbers(step.builder.emit, indices, shape_of(data)[:depth])
    written = _scattered(step.builder, data, places, updates, depth=depth, adds=_adds(step.attributes))
    return Done(outputs=(written,), residuals=places)


def _backward(step: Backward) -> Gradients:
    """An update's gradient is that of its row; the data's is that of the rows that no update replaced."""
    data, indices, updates = step.inputs
    dy, places, depth = step.output_gradient, step.residuals, _depth(indices)
    shape = shape_of(data)
    data_gradient = updates_gradient = None
    if step.wanted[0]:
        zeros = None if _adds(step.attributes) else step.emit(relax.op.zeros(shape_of(updates), dtype_of(updates)))
        data_gradient = dy if zeros is None else _scattered(step.builder, dy, places, zeros, depth=depth, adds=False)
    if step.wanted[2]:
        flat = step.emit(relax.op.reshape(dy, (math.prod(shape[:depth]), *shape[depth:])))
        updates_gradient = step.emit(relax.op.take(flat, places, 0, mode="clip"))
    return [data_gradient, None, updates_gradient]


SCATTER_ND_RULES: Mapping[str, Rule] = {"relax.scatter_nd": Rule(forward=_forward, backward=_backward)}
