"""Which values the whole numbers that a caller feeds may have: places in a table lead from an input to a lookup.

Only what moves elements or shifts all of them is followed. An index that the model cuts out of an input, or computes
from it in another way, is not known here, and the lookup clips it: `clipped_inputs` says of which inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain._tvm import Constant, dtype_of, relax

# These give every element of their first operand, and nothing else.
_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "astype",
        "reshape",
        "expand_dims",
        "squeeze",
        "flatten",
        "permute_dims",
        "broadcast_to",
        "tile",
        "repeat",
    )
)
# These give some elements of their operands, or numbers that grow with them: an id that is wrong stays wrong.
_PARTS = frozenset(
    f"relax.{name}"
    for name in ("strided_slice", "split", "take", "concat", "add", "subtract", "multiply", "floor", "round", "trunc")
)
_SHIFTS: Mapping[str, int] = {"relax.add": 1, "relax.subtract": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Every element of the expression must be from `lowest` to `highest`."""

    expr: Any
    lowest: int
    highest: int


def input_bounds(
    function: Any, inputs: Mapping[str, Any], requirements: Sequence[Requirement]
) -> Mapping[str, tuple[int, int]]:
    """The lowest and the highest value of each input that reaches a lookup; of several, what suits all.

    An input of floats has none, nor one whose type cannot hold a wrong value.
    """
    values = _values(function)
    names = {variable: name for name, variable in inputs.items()}
    bounds: dict[str, tuple[int, int]] = {}
    for requirement in requirements:
        for variable, shift in _origins(requirement.expr, values):
            dtype = np.dtype(dtype_of(variable))
            if variable not in names or dtype.kind not in "iu":
                continue
            held = np.iinfo(dtype)
            lowest, highest = bounds.get(names[variable], (int(held.min), int(held.max)))
            bounds[names[variable]] = max(lowest, requirement.lowest - shift), min(highest, requirement.highest - shift)
    return {name: pair for name, pair in bounds.items() if not _holds_only(inputs[name], pair)}


def clipped_inputs(function: Any, inputs: Mapping[str, Any], requirements: Sequence[Requirement]) -> tuple[str, ...]:
    """The inputs with ids that reach a lookup in a way that has no bounds, in the order of `inputs`."""
    values = _values(function)
    clipped: set[Any] = set()
    for requirement in requirements:
        followed = {v for v, _ in _origins(requirement.expr, values) if np.dtype(dtype_of(v)).kind in "iu"}
        clipped |= _sources(requirement.expr, values) - followed
    return tuple(name for name, variable in inputs.items() if variable in clipped)


def _values(function: Any) -> dict[Any, Any]:
    return {binding.var: binding.value for block in function.body.blocks for binding in block.bindings}


def _sources(expr: Any, values: Mapping[Any, Any]) -> set[Any]:
    """The variables of which elements are in `expr`, or numbers that were computed from them."""
    found: set[Any] = set()
    waiting, seen = [expr], set()
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, relax.Var):
            if expr not in values:
                found.add(expr)
            elif expr not in seen:
                seen.add(expr)
                waiting.append(values[expr])
        elif isinstance(expr, relax.Tuple):
            waiting.extend(expr.fields)
        elif isinstance(expr, relax.TupleGetItem):
            waiting.append(expr.tuple_value)
        elif isinstance(expr, relax.Call) and hasattr(expr.op, "name"):
            name = str(expr.op.name)
            if name in _MOVES or name == "relax.take":
                waiting.append(expr.args[0])
            elif name in _PARTS:
                waiting.extend(expr.args)
    return found


def _holds_only(variable: Any, pair: tuple[int, int]) -> bool:
    held = np.iinfo(dtype_of(variable))
    return pair == (int(held.min), int(held.max))


def _origins(expr: Any, values: Mapping[Any, Any]) -> Iterator[tuple[Any, int]]:
    """The variables of which all elements are in `expr`, and what was added to them on the way."""
    waiting = [(expr, 0)]
    while waiting:
        expr, shift = waiting.pop()
        if isinstance(expr, relax.Var):
            if expr in values:
                waiting.append((values[expr], shift))
            else:
                yield expr, shift
        elif isinstance(expr, relax.Tuple):
            waiting += [(field, shift) for field in expr.fields]
        elif isinstance(expr, relax.Call):
            name = str(expr.op.name) if hasattr(expr.op, "name") else ""
            if name in _MOVES or name == "relax.concat":
                waiting.append((expr.args[0], shift))
            elif name in _SHIFTS and (step := _whole_number(expr.args[1], values)) is not None:
                waiting.append((expr.args[0], shift + _SHIFTS[name] * step))


def _whole_number(expr: Any, values: Mapping[Any, Any]) -> int | None:
    """The one value of a constant, where it has one."""
    while isinstance(expr, relax.Var) and expr in values:
        expr = values[expr]
    if not isinstance(expr, Constant):
        return None
    array = expr.value.numpy()
    return int(array.reshape(())) if array.size == 1 and array.dtype.kind in "iu" else None
