"""From the ids of a lookup back through the model: which elements of its inputs they come from, and what these may be.

What only moves elements is evaluated on their places. What computes a number from one element, and grows or falls with
it, is inverted (`bisection.py`), with the model's own rounding.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgetrain._tvm import Constant, dtype_of, relax, shape_of
from edgetrain.model.bisection import Compute, bisected, range_of
from edgetrain.model.model import Array

_MOST_ELEMENTS = 1 << 22  # of a tensor whose places are followed: 32 MiB of them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ids:
    """Elements of an expression, by their places in it when it is flattened, and what each must lie between."""

    expr: Any
    places: Array
    lowest: Array  # float64, as `highest`; infinite where there is no limit
    highest: Array

    def moved(self, operand: Any, places: Array) -> Ids:
        """The same elements in an operand: `places` says for each element of the expression where it is there."""
        return replace(self, expr=operand, places=places.reshape(-1)[self.places])

    def selected(self, chosen: Array) -> Ids:
        return replace(self, places=self.places[chosen], lowest=self.lowest[chosen], highest=self.highest[chosen])


def is_too_large(expr: Any) -> bool:
    return math.prod(shape_of(expr)) > _MOST_ELEMENTS


def whole(expr: Any, lowest: int, highest: int) -> Ids:
    """Every element of an expression that is not too large."""
    places = np.arange(math.prod(shape_of(expr)))
    limits = np.full(places.shape, lowest, np.float64), np.full(places.shape, highest, np.float64)
    return Ids(expr=expr, places=places, lowest=limits[0], highest=limits[1])


def origins(ids: Ids, values: Mapping[Any, Any]) -> Iterator[Ids]:
    """Where the ids come from: variables without a value, and expressions that are not followed further.

    Elements that cannot be out of range, whatever the model computes them from, are left out.
    """
    waiting = [ids]
    while waiting:
        ids = waiting.pop()
        expr = resolved(ids.expr, values)
        ids = _limited(replace(ids, expr=expr))
        if not ids.places.size or isinstance(expr, Constant):
            continue
        steps = None if isinstance(expr, relax.Var) else _operands(ids, values)
        if steps is None:
            yield ids
        else:
            waiting += steps


def resolved(expr: Any, values: Mapping[Any, Any]) -> Any:
    while isinstance(expr, relax.Var) and expr in values:
        expr = values[expr]
    return expr


def _limited(ids: Ids) -> Ids:
    """The elements that may be out of range. A number that a type on the way cannot hold would become another one."""
    least, most = range_of(dtype_of(ids.expr))
    is_where_it_came_from = isinstance(ids.expr, relax.Var) or dtype_of(ids.expr) == "bool"
    floor, ceiling = (least, most) if is_where_it_came_from else (-np.inf, np.inf)
    ids = ids.selected((ids.lowest > floor) | (ids.highest < ceiling))
    return replace(ids, lowest=np.maximum(ids.lowest, least), highest=np.minimum(ids.highest, most))


def _operands(ids: Ids, values: Mapping[Any, Any]) -> list[Ids] | None:
    """The same elements in what the expression is computed from; None where it cannot be followed."""
    expr = ids.expr
    if isinstance(expr, relax.TupleGetItem):
        return _part_of_split(ids, resolved(expr.tuple_value, values))
    if not isinstance(expr, relax.Call) or not hasattr(expr.op, "name"):
        return None
    name = str(expr.op.name)
    if name in _MOVES:
        places = _places_in(expr.args[0])
        return None if places is None else [ids.moved(expr.args[0], _MOVES[name](places, expr))]
    if name in _COMPUTES_ALONE:
        return _inverted(ids, expr.args[0], _COMPUTES_ALONE[name](expr))
    if name in _COMPUTES_WITH_A_CONSTANT:
        return _inverted_beside_a_constant(ids, _COMPUTES_WITH_A_CONSTANT[name], values)
    return _BRANCHES[name](ids, values) if name in _BRANCHES else None


def _places_in(operand: Any) -> Array | None:
    shape = shape_of(operand)
    return None if is_too_large(operand) else np.arange(math.prod(shape)).reshape(shape)


def _part_of_split(ids: Ids, split: Any) -> list[Ids] | None:
    if isinstance(split, relax.Tuple):
        return [replace(ids, expr=split.fields[ids.expr.index])]
    if not isinstance(split, relax.Call) or str(getattr(split.op, "name", "")) != "relax.split":
        return None
    places = _places_in(split.args[0])
    if places is None:
        return None
    given = split.attrs.indices_or_sections
    ends = [int(end) for end in given] if hasattr(given, "__len__") else int(given)
    return [ids.moved(split.args[0], np.split(places, ends, int(split.attrs.axis))[ids.expr.index])]


def _concat(ids: Ids, values: Mapping[Any, Any]) -> list[Ids] | None:
    joined, axis = resolved(ids.expr.args[0], values), ids.expr.attrs.axis
    if not isinstance(joined, relax.Tuple) or axis is None or is_too_large(ids.expr):
        return None
    fields, axis = list(joined.fields), int(axis)
    shapes = [shape_of(field) for field in fields]
    of_field = np.concatenate([np.full(shape, i) for i, shape in enumerate(shapes)], axis)
    places = np.concatenate([np.arange(math.prod(shape)).reshape(shape) for shape in shapes], axis)
    chosen = of_field.reshape(-1)[ids.places]
    return [ids.selected(chosen == i).moved(field, places) for i, field in enumerate(fields) if np.any(chosen == i)]


def _where(ids: Ids, values: Mapping[Any, Any]) -> list[Ids] | None:
    """One whose condition is a constant: another one decides by data which operand must be in range."""
    condition, *branches = ids.expr.args
    known = resolved(condition, values)
    if not isinstance(known, Constant):
        return None
    shape = shape_of(ids.expr)
    chosen = np.broadcast_to(known.value.numpy(), shape).reshape(-1)[ids.places].astype(bool)
    found = []
    for branch, is_chosen in zip(branches, (chosen, ~chosen), strict=True):
        places = _places_in(branch)
        if places is None:
            return None
        found.append(ids.selected(is_chosen).moved(branch, np.broadcast_to(places, shape)))
    return found


def _take(ids: Ids, values: Mapping[Any, Any]) -> list[Ids] | None:
    """A selection whose places are constants."""
    data, indices = ids.expr.args[0], resolved(ids.expr.args[1], values)
    places = _places_in(data)
    if places is None or not isinstance(indices, Constant):
        return None
    axis = ids.expr.attrs.axis
    chosen = indices.value.numpy()
    return [ids.moved(data, np.take(places, chosen, None if axis is None else int(axis), mode="clip"))]


_BRANCHES: Mapping[str, Callable[[Ids, Mapping[Any, Any]], list[Ids] | None]] = {
    "relax.concat": _concat,
    "relax.where": _where,
    "relax.take": _take,
}


def _slice(places: Array, call: Any) -> Array:
    axes, begins, ends, *strides = ([int(n.value) for n in argument.fields] for argument in call.args[1:5])
    steps = strides[0] if strides else [1] * len(axes)
    cuts = [slice(None)] * places.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        cuts[axis] = slice(begin, end, step)
    return places[tuple(cuts)]


def _as_shaped(places: Array, call: Any) -> Array:
    return places.reshape(shape_of(call))


def _turned(places: Array, call: Any) -> Array:
    axes = call.attrs.axes
    return np.transpose(places, None if axes is None else [int(axis) for axis in axes])


def _repeated(places: Array, call: Any) -> Array:
    axis = call.attrs.axis
    return np.repeat(places, int(call.attrs.repeats), None if axis is None else int(axis))


# Every element of the result is one of the operand: where it was there.
_MOVES: Mapping[str, Callable[[Array, Any], Array]] = {
    "relax.reshape": _as_shaped,
    "relax.expand_dims": _as_shaped,
    "relax.squeeze": _as_shaped,
    "relax.flatten": _as_shaped,
    "relax.nn.batch_flatten": _as_shaped,
    "relax.permute_dims": _turned,
    "relax.broadcast_to": lambda places, call: np.broadcast_to(places, shape_of(call)),
    "relax.tile": lambda places, call: np.tile(places, [int(n) for n in call.attrs.repeats]),
    "relax.repeat": _repeated,
    "relax.flip": lambda places, call: np.flip(places, int(call.attrs.axis)),
    "relax.strided_slice": _slice,
}


def _cast(call: Any) -> Compute | None:
    """Towards zero, where floats become whole numbers."""
    kind = np.dtype(dtype_of(call)).kind
    if kind == "b":
        return None
    return np.trunc if kind in "iu" else lambda x: x.astype(dtype_of(call))


def _clip(call: Any) -> Compute | None:
    least, most = (float(argument.value) for argument in call.args[1:3])
    return None if np.isnan(least) or np.isnan(most) else lambda x: np.clip(x, x.dtype.type(least), x.dtype.type(most))


_COMPUTES_ALONE: Mapping[str, Callable[[Any], Compute | None]] = {
    "relax.astype": _cast,
    "relax.clip": _clip,
    "relax.floor": lambda _call: np.floor,
    "relax.ceil": lambda _call: np.ceil,
    "relax.round": lambda _call: np.round,
    "relax.trunc": lambda _call: np.trunc,
    "relax.negative": lambda _call: np.negative,
}
_COMPUTES_WITH_A_CONSTANT: Mapping[str, Callable[[Any, Any], Any]] = {
    "relax.add": operator.add,
    "relax.subtract": operator.sub,
    "relax.multiply": operator.mul,
    "relax.divide": operator.truediv,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
}


def _inverted_beside_a_constant(
    ids: Ids, compute: Callable[[Any, Any], Any], values: Mapping[Any, Any]
) -> list[Ids] | None:
    one, two = (resolved(argument, values) for argument in ids.expr.args)
    operand, constant = (one, two) if isinstance(two, Constant) else (two, one)
    is_float = dtype_of(operand).startswith("float")
    if not isinstance(constant, Constant) or (compute is operator.truediv and (operand is two or not is_float)):
        return None
    shape, places = shape_of(ids.expr), _places_in(operand)
    beside = np.broadcast_to(constant.value.numpy(), shape).reshape(-1)[ids.places]
    if places is None or not np.isfinite(beside).all() or (compute is operator.truediv and not beside.all()):
        return None
    inputs = ids.moved(operand, np.broadcast_to(places, shape))
    numbers = beside if is_float else beside.astype(np.float64)
    if operand is one:
        return _inverted(inputs, operand, compute, numbers)
    return _inverted(inputs, operand, lambda x, constant: compute(constant, x), numbers)


def _inverted(ids: Ids, operand: Any, compute: Callable[..., Array] | None, *beside: Array) -> list[Ids] | None:
    """What the operand's elements may be; None where no value of one is in range, or not computed here.

    `compute` takes numbers of the operand, and those beside them. Elements that have all of that in common are
    inverted once.
    """
    if compute is None or dtype_of(operand) == "bool":
        return None
    first, kind = _kinds(ids.lowest, ids.highest, *beside)
    constants = [numbers[first] for numbers in beside]
    with np.errstate(all="ignore"):
        limits = bisected(ids.lowest[first], ids.highest[first], dtype_of(operand), lambda x: compute(x, *constants))
    if limits is None:
        return None
    return [replace(ids, expr=operand, lowest=limits[0][kind], highest=limits[1][kind])]


def _kinds(*columns: Array) -> tuple[Array, Array]:
    """The first row of each kind, and the kind of each row."""
    kind = np.zeros(columns[0].shape, np.int64)
    for column in columns:
        found, number = np.unique(column, return_inverse=True)
        kind = np.unique(kind * len(found) + number, return_inverse=True)[1]
    return np.unique(kind, return_index=True)[1], kind
