"""Which values the inputs may have that a caller feeds: places in a table lead from an input to a lookup.

An index that the model computes in a way that `followed_ids` does not follow has no bounds, and the lookup clips it:
`InputLimits.clipped` says of which inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, shape_of
from edgetrain.model.followed_ids import Ids, is_too_large, origins, whole
from edgetrain.model.model import Array
from edgetrain.value_bounds import InputBounds, PartBounds, Region

# These give elements of their first operand, or numbers that grow with them: an id that is wrong stays wrong.
_FROM_THE_FIRST = frozenset(
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
        "flip",
        "strided_slice",
        "split",
        "take",
        "clip",
        "floor",
        "ceil",
        "round",
        "trunc",
        "negative",
    )
)
_FROM_ALL = frozenset(
    f"relax.{name}" for name in ("concat", "add", "subtract", "multiply", "divide", "maximum", "minimum")
)
_MOST_REGIONS = 256  # of an input: each is a line of the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Every element of the expression must be from `lowest` to `highest`."""

    expr: Any
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLimits:
    """`bounds` by the name of an input. `clipped` have ids that reach a lookup in a way that has no bounds."""

    bounds: Mapping[str, InputBounds]
    clipped: tuple[str, ...]


def input_limits(function: Any, inputs: Mapping[str, Any], requirements: Sequence[Requirement]) -> InputLimits:
    """What the lookups ask of each input; of several, what suits all."""
    values = {binding.var: binding.value for block in function.body.blocks for binding in block.bindings}
    fed = set(inputs.values())
    asked: dict[Any, tuple[Array, Array]] = {}
    clipped: set[Any] = set()
    for requirement in requirements:
        if is_too_large(requirement.expr):
            clipped |= _sources(requirement.expr, values) & fed
            continue
        for ids in origins(whole(requirement.expr, requirement.lowest, requirement.highest), values):
            if isinstance(ids.expr, relax.Var) and ids.expr in fed:
                _add(asked, ids)
            else:
                clipped |= _sources(ids.expr, values) & fed
    bounds = {}
    for name, variable in inputs.items():
        if variable in asked:
            found = _bounds_of(variable, *asked[variable])
            if found is None:
                clipped.add(variable)
            else:
                bounds[name] = found
    return InputLimits(bounds=bounds, clipped=tuple(name for name, variable in inputs.items() if variable in clipped))


def _add(asked: dict[Any, tuple[Array, Array]], ids: Ids) -> None:
    """An element that is asked for twice suits both."""
    if ids.expr not in asked:
        count = int(np.prod(shape_of(ids.expr)))
        asked[ids.expr] = np.full(count, -np.inf), np.full(count, np.inf)
    lowest, highest = asked[ids.expr]
    np.maximum.at(lowest, ids.places, ids.lowest)
    np.minimum.at(highest, ids.places, ids.highest)


def _bounds_of(variable: Any, lowest: Array, highest: Array) -> InputBounds | None:
    """None where the bounds of samples differ, no value suits, or a driver could not look at them."""
    dtype, shape = dtype_of(variable), shape_of(variable)
    rows = shape[0] if shape else 1
    is_asked = (lowest > -np.inf) | (highest < np.inf)
    by_sample = [limits.reshape(rows, -1) for limits in (lowest, highest)]
    if any(np.any(limits != limits[0]) for limits in by_sample) or np.any(lowest > highest):
        return None
    if np.dtype(dtype).kind not in "iu" and dtype != "float32":
        return None
    low, high = (limits[0] for limits in by_sample)
    if dtype != "float32" and is_asked.all() and np.all(low == low[0]) and np.all(high == high[0]):
        return _whole(low[0], dtype), _whole(high[0], dtype)
    regions = _regions(low, high, dtype)
    return PartBounds(regions=regions) if len(regions) <= _MOST_REGIONS else None


def _limit(number: float, dtype: str) -> float:
    """As the type spells it."""
    return float(number) if dtype == "float32" else _whole(number, dtype)


def _whole(number: float, dtype: str) -> int:
    """The ends of 64 bits are no float64."""
    held = np.iinfo(dtype)
    return min(max(int(number), int(held.min)), int(held.max))


def _regions(lowest: Array, highest: Array, dtype: str) -> tuple[Region, ...]:
    """Runs of elements with the same bounds; those of one length that are evenly spaced are one region."""
    ends = np.flatnonzero((lowest[1:] != lowest[:-1]) | (highest[1:] != highest[:-1])) + 1
    runs: dict[tuple[float, float, int], list[int]] = {}
    for start, end in zip([0, *ends.tolist()], [*ends.tolist(), len(lowest)], strict=True):
        runs.setdefault((float(lowest[start]), float(highest[start]), end - start), []).append(start)
    regions = [
        Region(
            lowest=_limit(low, dtype), highest=_limit(high, dtype), start=start, length=length, step=step, count=count
        )
        for (low, high, length), starts in runs.items()
        if (low, high) != (-np.inf, np.inf)
        for start, step, count in _evenly_spaced(starts, length)
    ]
    return tuple(sorted(regions, key=lambda region: region.start))


def _evenly_spaced(starts: Sequence[int], length: int) -> Iterator[tuple[int, int, int]]:
    """The first of each series, the step, and how many there are."""
    place = 0
    while place < len(starts):
        first, count = starts[place], 1
        step = starts[place + 1] - first if place + 1 < len(starts) else length
        while place + count < len(starts) and starts[place + count] == first + count * step:
            count += 1
        yield first, step, count
        place += count


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
            if name in _FROM_THE_FIRST:
                waiting.append(expr.args[0])
            elif name in _FROM_ALL:
                waiting.extend(expr.args)
            elif name == "relax.where":
                waiting.extend(expr.args[1:])
    return found
