"""A copy of the part of A that a block of rows reads, with its padding, so that no load needs a condition.

A tile reads elements of A one by one and broadcasts each to a vector of B. Where A is an image under a window, a
condition at each of these loads would cost more than the products. So the part of the image that a block reaches is
copied first, with zeros around it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.rules.contraction import Axis, Contraction, conjuncts, replaced, unguarded
from edgetrain_tuner.rules.loops import Loops, sequence

_ZERO = tirx.FloatImm("float32", 0.0)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The index of A in each dimension of its tensor: `bases`, plus the axes of i and k times their `slopes`."""

    load: Any
    i: tuple[Axis, ...]
    k: tuple[Axis, ...]
    bases: tuple[Any, ...]
    slopes: tuple[tuple[int, ...], ...]  # for each dimension, for each axis of i and then of k

    def shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of what is read while the axes run over boxes of these sizes."""
        return tuple(
            1 + sum(abs(slope) * (size - 1) for slope, size in zip(slopes, sizes, strict=True))
            for slopes in self.slopes
        )

    def elements(self, sizes: Sequence[int]) -> int:
        return math.prod(self.shape(sizes))


def reach_of(contraction: Contraction) -> Reach | None:
    """None where A is no tensor's element, its place is not linear, or it is guarded by more than its bounds."""
    condition, load = unguarded(contraction.a)
    if not isinstance(load, TensorLoad):
        return None
    analyzer = _analyzer((*contraction.s, *contraction.i, *contraction.k))
    present = conjuncts(contraction.present)
    for part in conjuncts(condition):
        if not _is_bound(analyzer, part, load) and not any(tvm_ffi.structural_equal(part, p) for p in present):
            return None
    axes = (*contraction.i, *contraction.k)
    bases, slopes = [], []
    for index in load.indices:
        found = list(tvm.sym.detect_linear_equation(index, [axis.variable for axis in axes]))
        if not found or not all(isinstance(slope, tirx.IntImm) for slope in found[:-1]):
            return None
        slopes.append(tuple(int(slope) for slope in found[:-1]))
        bases.append(found[-1])
    return Reach(load=load, i=contraction.i, k=contraction.k, bases=tuple(bases), slopes=tuple(slopes))


@dataclass(frozen=True, kw_only=True)
class Stage:
    """`buffer` holds, for each task, what `sizes` of the axes reach from where they start.

    `lows` is the tensor's index of the copy's first element, in terms of the variables `task` and `starts`.
    """

    reach: Reach
    sizes: tuple[int, ...]
    buffer: Any
    lows: tuple[Any, ...]
    bounds: tuple[tuple[int, int], ...]  # of the lows
    task: Any
    starts: Mapping[Any, Any]  # a variable for each axis

    @staticmethod
    def of(reach: Reach, s: Sequence[Axis], sizes: Sequence[int], tasks: int) -> Stage:
        axes = (*reach.i, *reach.k)
        starts = {axis.variable: tirx.Var(f"{axis.variable.name}_start", axis.variable.ty.dtype) for axis in axes}
        analyzer = _analyzer(s)
        for axis, size in zip(axes, sizes, strict=True):
            last = 0 if size == axis.extent else axis.extent - 1
            analyzer.bind(starts[axis.variable], tvm.ir.Range(0, last + 1))
        lows = []
        for base, slopes in zip(reach.bases, reach.slopes, strict=True):
            low = base
            for slope, axis, size in zip(slopes, axes, sizes, strict=True):
                low = low + slope * (starts[axis.variable] + (0 if slope > 0 else size - 1))
            lows.append(analyzer.simplify(low))
        found = [analyzer.const_int_bound(low) for low in lows]
        dtype = axes[0].variable.ty.dtype
        return Stage(
            reach=reach,
            sizes=tuple(sizes),
            buffer=tirx.decl_buffer((tasks, *reach.shape(sizes)), "float32", "staged"),
            lows=tuple(lows),
            bounds=tuple((int(bound.min_value), int(bound.max_value)) for bound in found),
            task=tirx.Var("task", dtype),
            starts=starts,
        )

    @property
    def element(self) -> Any:
        """A, as a load from the copy."""
        places = []
        for slopes in self.reach.slopes:
            terms = zip(slopes, self.starts.items(), self.sizes, strict=True)
            away = [
                slope * (axis - start) if slope > 0 else -slope * (start + (size - 1) - axis)
                for slope, (axis, start), size in terms
                if slope
            ]
            places.append(sum(away[1:], start=away[0]) if away else tirx.IntImm(self.task.ty.dtype, 0))
        return self.buffer[(self.task, *places)]

    def fill(self, loops: Loops, lanes: int, values: Mapping[Any, Any]) -> Any:
        """Copies it all; `values` are those of s, of `task` and of `starts`."""
        shape = [int(extent) for extent in self.buffer.ty.shape][1:]
        lows = [replaced(low, values) for low in self.lows]
        return loops.nest("stage", shape[:-1], lambda lead: self._row(loops, lanes, values[self.task], lead, lows))

    def _row(self, loops: Loops, lanes: int, task: Any, lead: Sequence[Any], lows: Sequence[Any]) -> Any:
        width = int(self.buffer.ty.shape[-1])

        def clear(start: int, stop: int) -> list[Any]:
            def zero(at: Any) -> Any:
                return tirx.BufferStore(self.buffer, _ZERO, [task, *lead, at + start])

            return [loops.along("zero", stop - start, lanes, zero)] if stop > start else []

        def element(at: Any) -> Any:
            return self.reach.load.source[tuple(low + index for low, index in zip(lows, (*lead, at), strict=True))]

        low, high = self.bounds[-1]
        extent = int(self.reach.load.source.ty.shape[-1])
        if low == high:  # as for a block of whole rows: then it is known which of them is padding
            first, end = max(0, -low), min(width, extent - low)

            def copy(at: Any) -> Any:
                return tirx.BufferStore(self.buffer, element(at + first), [task, *lead, at + first])

            copied = sequence(*clear(0, first), loops.along("copy", end - first, lanes, copy), *clear(end, width))
        else:

            def choose(at: Any) -> Any:
                inside = tirx.all(lows[-1] + at >= 0, lows[-1] + at < extent)
                return tirx.BufferStore(self.buffer, tirx.if_then_else(inside, element(at), _ZERO), [task, *lead, at])

            copied = loops.loop("copy", width, choose)
        inside = self._inside(lead, lows)
        return copied if inside is None else tirx.IfThenElse(inside, copied, sequence(*clear(0, width)))

    def _inside(self, lead: Sequence[Any], lows: Sequence[Any]) -> Any | None:
        """Whether a row of the copy lies in the tensor; None if all do."""
        conditions = []
        sizes, extents = self.buffer.ty.shape[1:-1], self.reach.load.source.ty.shape
        for index, low, bound, size, extent in zip(lead, lows, self.bounds, sizes, extents, strict=False):
            conditions += [low + index >= 0] if bound[0] < 0 else []
            conditions += [low + index < extent] if bound[1] + int(size) > int(extent) else []
        return tirx.all(*conditions) if conditions else None


def _analyzer(axes: Sequence[Axis]) -> Any:
    analyzer = tvm.sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.variable, tvm.ir.Range(0, axis.extent))
    return analyzer


def _is_bound(analyzer: Any, condition: Any, load: Any) -> bool:
    """Whether the condition says no more than that one index of the load is inside its tensor."""
    match condition:
        case tirx.GE():
            slack = condition.a - condition.b
        case tirx.LE():
            slack = condition.b - condition.a
        case tirx.GT():
            slack = condition.a - condition.b - 1
        case tirx.LT():
            slack = condition.b - condition.a - 1
        case _:
            return False
    return any(
        analyzer.can_prove_equal(slack, index) or analyzer.can_prove_equal(slack, extent - 1 - index)
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True)
    )
