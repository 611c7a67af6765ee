"""Cuts an axis where a condition on it changes, so that a loop over one segment needs no condition.

An axis may also be split into phases: where a kernel divides an index by 2, even and odd places read different
neighbours, but each of them reads consecutive ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from edgetrain_tuner.rules.contraction import Axis, uses, variables_of

_INTEGER: Mapping[Any, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b,
    tirx.FloorMod: lambda a, b: a % b,
    tirx.Min: min,
    tirx.Max: max,
}
_COMPARISON: Mapping[Any, Callable[[int, int], bool]] = {
    tirx.LT: lambda a, b: a < b,
    tirx.LE: lambda a, b: a <= b,
    tirx.GT: lambda a, b: a > b,
    tirx.GE: lambda a, b: a >= b,
    tirx.EQ: lambda a, b: a == b,
    tirx.NE: lambda a, b: a != b,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The places `period` · n + phase with n from `first` to before `end`, for each of the phases."""

    first: int
    end: int
    phases: tuple[int, ...]


def period_of(expression: Any, axis: Axis) -> int:
    """The least number of phases in each of which every division of the axis advances evenly."""
    found: list[int] = []

    def visit(node: Any) -> None:
        if uses(node.a, axis.variable) and isinstance(node.b, tirx.IntImm):
            found.append(int(node.b))

    tvm_ffi.structural_walk(expression, ((tirx.FloorDiv, tirx.FloorMod), visit))
    return math.lcm(*found)


def segments_of(expression: Any, axis: Axis, period: int, others: Sequence[Axis]) -> list[Segment]:
    """The axis cut where any comparison in `expression` of it and `others` alone changes for any value of those."""
    conditions = [_Condition.of(node, axis, others) for node in _comparisons(expression, axis, others)]

    def signature(number: int) -> tuple[Any, ...]:
        places = [number * period + phase for phase in range(period)]
        return tuple(
            (phase, *(c.outcomes(place) for c in conditions))
            for phase, place in enumerate(places)
            if place < axis.extent
        )

    numbers = range(-(-axis.extent // period))
    segments = []
    for shape, members in itertools.groupby(numbers, signature):
        run = list(members)
        segments.append(Segment(first=run[0], end=run[-1] + 1, phases=tuple(part[0] for part in shape)))
    return segments


@dataclass(frozen=True, kw_only=True)
class _Condition:
    comparison: Any
    variable: Any
    others: tuple[Axis, ...]  # those that it depends on

    @staticmethod
    def of(comparison: Any, axis: Axis, others: Sequence[Axis]) -> _Condition:
        needed = tuple(other for other in others if uses(comparison, other.variable))
        return _Condition(comparison=comparison, variable=axis.variable, others=needed)

    def outcomes(self, place: int) -> tuple[bool, ...]:
        """Whether it holds at a place, for every value of the other axes."""
        compare, (left, right) = _COMPARISON[type(self.comparison)], (self.comparison.a, self.comparison.b)
        found = []
        for values in itertools.product(*(range(other.extent) for other in self.others)):
            known = [(self.variable, place), *((o.variable, v) for o, v in zip(self.others, values, strict=True))]
            found.append(compare(_integer(left, known), _integer(right, known)))
        return tuple(found)


def _comparisons(expression: Any, axis: Axis, others: Sequence[Axis]) -> list[Any]:
    """Comparisons of whole numbers that depend on the axis, and on nothing but it and `others`."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tuple(_COMPARISON), found.append))
    known = [axis.variable, *(other.variable for other in others)]

    def is_decided(node: Any) -> bool:
        is_known = all(any(v.same_as(k) for k in known) for v in variables_of(node))
        return uses(node, axis.variable) and is_known and is_comparison(node)

    return [node for node in found if is_decided(node)]


def is_comparison(condition: Any) -> bool:
    """Whether it compares two whole numbers that can be computed."""
    return type(condition) in _COMPARISON and is_computable(condition.a) and is_computable(condition.b)


def is_computable(expression: Any) -> bool:
    """Whether it is a whole number made of variables and numbers."""
    if isinstance(expression, (tirx.Var, tirx.IntImm)):
        return True
    if isinstance(expression, tirx.Cast):
        return str(expression.ty.dtype).startswith("int") and is_computable(expression.value)
    return type(expression) in _INTEGER and is_computable(expression.a) and is_computable(expression.b)


def _integer(expression: Any, known: Sequence[tuple[Any, int]]) -> int:
    if isinstance(expression, tirx.IntImm):
        return int(expression)
    if isinstance(expression, tirx.Var):
        return next(value for variable, value in known if expression.same_as(variable))
    if isinstance(expression, tirx.Cast):
        return _integer(expression.value, known)
    return _INTEGER[type(expression)](_integer(expression.a, known), _integer(expression.b, known))


def formula(expression: Any, variables: Sequence[Any]) -> Callable[[Sequence[int]], int]:
    """A function of the variables' values, in their order, for what is computable or compares what is."""
    if isinstance(expression, tirx.IntImm):
        number = int(expression)
        return lambda _: number
    if isinstance(expression, tirx.Var):
        place = next(n for n, variable in enumerate(variables) if expression.same_as(variable))
        return lambda values: values[place]
    if isinstance(expression, tirx.Cast):
        return formula(expression.value, variables)
    left, right = formula(expression.a, variables), formula(expression.b, variables)
    operation: Callable[[int, int], int] = {**_INTEGER, **_COMPARISON}[type(expression)]
    return lambda values: operation(left(values), right(values))
