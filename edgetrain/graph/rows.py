"""Channel-wise sparse update: only some outputs of a weight are trained, and only their gradient is computed.

The weight stays as it is; what training adds to the chosen rows is a parameter of its own, 0 at first. Its gradient is
those rows of the weight's gradient, so plain SGD and Adam move it exactly as they would move the rows; weight decay
pulls towards the pretrained weight instead of 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, shape_of
from edgetrain.graph.adapters import RowDelta
from edgetrain.graph.products import Layout, product_weights
from edgetrain.graph.rewrite import Replace, replace_calls
from edgetrain.model.model import Array, Model


def attach_rows(model: Model, rows: Mapping[str, tuple[int, ...]]) -> tuple[Model, tuple[RowDelta, ...]]:
    """The model with a delta of those rows beside each weight of `rows`. Its outputs are the model's own at first.

    Each name must be one of `product_weights`, with more outputs than rows; rows rise.
    """
    deltas: list[RowDelta] = []
    added: dict[str, Array] = {}
    replacements: dict[Any, Replace] = {}
    for weight in product_weights(model):
        if weight.name not in rows:
            continue
        delta = RowDelta(weight=weight.name, rows=rows[weight.name], axis=weight.outputs_axis)
        assert 0 < len(delta.rows) < weight.outputs, "a delta of all rows is a full update"
        deltas.append(delta)
        shape = list(weight.shape)
        shape[delta.axis] = len(delta.rows)
        added[delta.delta] = np.zeros(shape, model.parameters[weight.name].dtype)
        for use in weight.uses:
            replacements[use.call] = _replacement(weight.layout, delta, weight.outputs)
    return replace_calls(model, replacements, added), tuple(deltas)


def _replacement(layout: Layout, delta: RowDelta, outputs: int) -> Replace:
    def replace(builder: Any, call: Any, arguments: Sequence[Any], added: Mapping[str, Any]) -> Any:
        straight = builder.emit(relax.Call(call.op, list(arguments), call.attrs, call.ty_args))
        weight = added[delta.delta]
        if layout is Layout.OUTPUTS_FIRST:
            weight = builder.emit(relax.op.permute_dims(weight, [1, 0]))
        few = builder.emit(relax.Call(call.op, [arguments[0], weight], call.attrs, call.ty_args))
        axis = 1 if layout is Layout.KERNEL else len(shape_of(few)) - 1
        rest = list(shape_of(few))
        rest[axis] = outputs - len(delta.rows)
        zeros = builder.emit(relax.op.zeros(rest, dtype_of(few)))
        spread = builder.emit(relax.op.concat([few, zeros], axis))
        places = _places(delta.rows, outputs)
        if places != list(range(outputs)):
            spread = builder.emit(relax.op.take(spread, relax.const(np.array(places), "int64"), axis))
        return builder.emit(relax.op.add(straight, spread))

    return replace


def _places(rows: Sequence[int], outputs: int) -> list[int]:
    """For each output, where it stands when the chosen rows come first and the others after them."""
    others = [row for row in range(outputs) if row not in set(rows)]
    place_of = {row: place for place, row in enumerate((*rows, *others))}
    return [place_of[row] for row in range(outputs)]
