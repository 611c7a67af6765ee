"""Recognises windows that slide over each channel by itself: depthwise convolutions and both their gradients.

    C[s, j] = Σ_k A[s, k] · B[s, j, k]

where B is read at rows and columns that depend on j and k together, such as `2·y + r − 1`. One of the two axes runs
over positions (y), the other over the taps of the window (r); `find_window` says which. Conditions that only test
whether an index is inside the tensor are dropped, since nothing outside is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.rules.contraction import (
    Axis,
    Contraction,
    conjuncts,
    extent_of,
    replaced,
    unguarded,
    uses,
    variables_of,
)

_ZERO = tirx.FloatImm("float32", 0.0)


@dataclass(frozen=True, kw_only=True)
class Coordinate:
    """A row or a column of the tensor: `stride` · position + `step` · tap + base, `base` being of the phase alone."""

    variable: Any  # stands for the coordinate in `ChannelWindow.b`
    position: Axis
    tap: Axis
    phase: Axis | None  # of a stride that was taken apart: C has `phase.extent` places for each position
    stride: int
    step: int
    bases: tuple[int, ...]  # for each phase
    extent: int  # of the tensor

    @property
    def phases(self) -> int:
        return len(self.bases)

    def offset(self, tap: int, phase: int) -> int:
        """The coordinate at position 0."""
        return self.step * tap + self.bases[phase]

    @property
    def low(self) -> int:
        return min(self._offsets())

    @property
    def span(self) -> int:
        """How many coordinates one position reaches, from the first to the last."""
        return max(self._offsets()) - self.low + 1

    def _offsets(self) -> list[int]:
        return [self.offset(tap, phase) for tap in range(self.tap.extent) for phase in range(self.phases)]

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.position, self.tap) if self.phase is None else (self.position, self.tap, self.phase)


@dataclass(frozen=True, kw_only=True)
class ChannelWindow:
    """The form above. Positions are in j and taps in k where the window `slides_over_result`, else the other way."""

    contraction: Contraction
    channels: tuple[Axis, ...]
    images: tuple[Axis, ...]  # the axes on the positions' side that no coordinate depends on
    rows: Coordinate
    columns: Coordinate
    slides_over_result: bool
    a: Any
    b: Any  # inside the tensor, as an expression of channels, images and both coordinates

    @property
    def taps(self) -> int:
        return self.rows.tap.extent * self.columns.tap.extent


def find_window(contraction: Contraction) -> ChannelWindow | None:
    """The window that the contraction slides over each channel; None if it is something else."""
    if contraction.i:
        return None
    conditions, value = _conditions(contraction.b)
    shapes = _coordinates(value, contraction)
    if shapes is None:
        return None
    walks_j = extent_of([a for a in contraction.j if any(uses(e, a.variable) for e, _ in shapes)]) >= extent_of(
        [a for a in contraction.k if any(uses(e, a.variable) for e, _ in shapes)]
    )
    positions, taps = (contraction.j, contraction.k) if walks_j else (contraction.k, contraction.j)
    coordinates = [_coordinate(e, extent, contraction, positions, taps) for e, extent in shapes]
    found = [c for c in coordinates if c is not None]
    if len(found) < len(coordinates) or not _are_apart(found) or len(found) != len(taps):
        return None
    b = _by_coordinates(value, [e for e, _ in shapes], found)
    in_windows = [axis for c in found for axis in c.axes]
    if any(uses(b, axis.variable) for axis in in_windows):
        return None
    split = _split_conditions(conditions, contraction, [e for e, _ in shapes], found)
    if split is None:
        return None
    of_a, of_b = split
    dtype = contraction.k[0].variable.ty.dtype
    return ChannelWindow(
        contraction=contraction,
        channels=_without(contraction.s, in_windows),
        images=_without(positions, in_windows),
        rows=found[0] if len(found) == 2 else _no_coordinate(dtype),
        columns=found[-1],
        slides_over_result=walks_j,
        a=_under(of_a, contraction.a),
        b=_under(of_b, b),
    )


def _under(conditions: Sequence[Any], value: Any) -> Any:
    return tirx.if_then_else(tirx.all(*conditions), value, _ZERO) if conditions else value


def _without(axes: Sequence[Axis], taken: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(axis for axis in axes if not any(axis.variable.same_as(t.variable) for t in taken))


def _conditions(term: Any) -> tuple[list[Any], Any]:
    """All conditions under which the term is not zero, and its value then."""
    found: list[Any] = []
    condition, value = unguarded(term)
    while condition is not None:
        found += conjuncts(condition)
        condition, value = unguarded(value)
    return found, value


def _coordinates(value: Any, contraction: Contraction) -> list[tuple[Any, int]] | None:
    """One or two index expressions that depend on j and k, with the extents they index; the last is contiguous."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(value, (TensorLoad, loads.append))
    found: list[tuple[Any, int]] = []
    for load in loads:
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
            if not all(any(uses(index, a.variable) for a in side) for side in (contraction.j, contraction.k)):
                continue
            same = [size for known, size in found if tvm_ffi.structural_equal(known, index)]
            if any(size != int(extent) for size in same):
                return None
            if not same:
                found.append((index, int(extent)))
    is_contiguous = any(tvm_ffi.structural_equal(load.indices[-1], found[-1][0]) for load in loads) if found else False
    return found if is_contiguous and len(found) <= 2 else None


def _coordinate(
    index: Any, extent: int, contraction: Contraction, positions: Sequence[Axis], taps: Sequence[Axis]
) -> Coordinate | None:
    used = [[axis for axis in axes if uses(index, axis.variable)] for axes in (positions, taps)]
    if [len(axes) for axes in used] != [1, 1]:
        return None
    (position,), (tap,) = used
    # A phase shifts what is read, or only where the result goes: both belong to the position they were one with.
    together = (index, *(place for place in contraction.indices if uses(place, position.variable)))
    phases = [axis for axis in contraction.s if any(uses(e, axis.variable) for e in together)]
    if len(phases) > 1:
        return None
    slopes = tvm.sym.detect_linear_equation(index, [position.variable, tap.variable])
    if not slopes or not all(isinstance(slope, tirx.IntImm) for slope in slopes[:2]) or int(slopes[0]) < 1:
        return None
    phase = phases[0] if phases else None
    fixed: list[dict[Any, Any]] = [{}]
    if phase is not None:
        fixed = [{phase.variable: tirx.IntImm(phase.variable.ty.dtype, n)} for n in range(phase.extent)]
    bases = [tvm.sym.Analyzer().simplify(replaced(slopes[2], values)) for values in fixed]
    if not all(isinstance(base, tirx.IntImm) for base in bases):
        return None
    return Coordinate(
        variable=tirx.Var("coordinate", position.variable.ty.dtype),
        position=position,
        tap=tap,
        phase=phase,
        stride=int(slopes[0]),
        step=int(slopes[1]),
        bases=tuple(int(base) for base in bases),
        extent=extent,
    )


def _no_coordinate(dtype: Any) -> Coordinate:
    """The one row of a tensor without rows."""
    axes = [Axis(variable=tirx.Var(name, dtype), extent=1) for name in ("row", "tap")]
    return Coordinate(
        variable=tirx.Var("coordinate", dtype),
        position=axes[0],
        tap=axes[1],
        phase=None,
        stride=1,
        step=0,
        bases=(0,),
        extent=1,
    )


def _are_apart(coordinates: Sequence[Coordinate]) -> bool:
    """Whether no axis belongs to two coordinates."""
    variables = [axis.variable for c in coordinates for axis in c.axes]
    return not any(v.same_as(w) for n, v in enumerate(variables) for w in variables[:n])


def _by_coordinates(value: Any, indices: Sequence[Any], coordinates: Sequence[Coordinate]) -> Any:
    def on_load(load: Any) -> Any:
        places = []
        for index in load.indices:
            known = [
                c.variable for e, c in zip(indices, coordinates, strict=True) if tvm_ffi.structural_equal(e, index)
            ]
            places.append(known[0] if known else index)
        return load.source[tuple(places)]

    return tvm_ffi.structural_map(value, (TensorLoad, on_load))


def _split_conditions(
    conditions: Sequence[Any], contraction: Contraction, indices: Sequence[Any], coordinates: Sequence[Coordinate]
) -> tuple[list[Any], list[Any]] | None:
    """The conditions on A and those on B inside its tensor; None if one is about a position and a tap by themselves.

    A condition on a coordinate that holds everywhere inside the tensor is dropped: nothing outside is ever read.
    """
    analyzer = tvm.sym.Analyzer()
    for c in coordinates:
        analyzer.bind(c.variable, tvm.ir.Range(0, c.extent))
    swaps: dict[Any, Any] = {}
    for c, index in zip(coordinates, indices, strict=True):
        swap = _solved(c, index)
        if swap is None:
            return None
        swaps |= swap
    of_a, of_b = [], []
    in_windows = [axis.variable for c in coordinates for axis in c.axes]
    for condition in conditions:
        if not any(uses(condition, axis.variable) for axis in contraction.j):
            of_a.append(condition)
            continue
        inside = analyzer.simplify(replaced(condition, swaps))
        if any(v.same_as(w) for v in variables_of(inside) for w in in_windows):
            return None
        if not analyzer.can_prove(inside):
            of_b.append(inside)
    return of_a, of_b


def _solved(coordinate: Coordinate, index: Any) -> dict[Any, Any] | None:
    """The tap or the position by the coordinate, where division is not needed."""
    for axis, slope in ((coordinate.tap, coordinate.step), (coordinate.position, coordinate.stride)):
        if abs(slope) == 1:
            rest = replaced(index, {axis.variable: tirx.IntImm(axis.variable.ty.dtype, 0)})
            return {axis.variable: (coordinate.variable - rest) * slope}
    return None
