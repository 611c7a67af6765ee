"""A window that is reduced without products: pools, their winners and their gradients, with no search.

The taps are few, so all of them are written out; rows and columns are cut where the padding begins, and taken apart
into phases where a stride divides them. What is left inside is one expression of consecutive elements, which LLVM turns
into vectors on any target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.contraction import MINIMUM_LANES, Axis, replaced, uses
from edgetrain_tuner.rules.generic import MINIMUM_PARALLEL_WORK
from edgetrain_tuner.rules.inlining import inline_all
from edgetrain_tuner.rules.loops import PARALLEL, SERIAL, Loops, digits_of, sequence
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.segments import Segment, period_of, segments_of
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names

PARAMETERS = ("parallel",)
MOST_PHASES = 4
MOST_TAPS_WRITTEN = 1024  # in the whole kernel; beyond, it grows larger than the first-level instruction cache
_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.iter_type


class Pooling:
    """The rule. It declines kernels without a window, with products (there are better rules) and with many taps."""

    name = "pooling"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, features: Features) -> Parameters | None:
        pool = self._pool(kernel, features)
        if pool is None:
            return None
        return {"parallel": (int(features.cores > 1 and pool.work >= MINIMUM_PARALLEL_WORK),)}

    def choices(self, kernel: Kernel, features: Features, _name: str, _before: Parameters) -> Sequence[Values]:
        if self._pool(kernel, features) is None:
            return []
        return [(0,), (1,)] if features.cores > 1 else [(0,)]

    def check(self, kernel: Kernel, features: Features, parameters: Parameters) -> None:
        self._checked(kernel, features, parameters)

    def write(self, kernel: Kernel, features: Features, parameters: Parameters) -> Any:
        return self._checked(kernel, features, parameters).written(is_shared=bool(parameters["parallel"][0]))

    def _checked(self, kernel: Kernel, features: Features, parameters: Parameters) -> Pool:
        require_names(parameters, PARAMETERS)
        pool = self._pool(kernel, features)
        if pool is None:
            raise ScheduleRefusedError("the kernel reduces no window")
        if parameters["parallel"] not in self.choices(kernel, features, "parallel", {}):
            raise ScheduleRefusedError(f"the planes are not shared among {features.cores} cores")
        return pool

    def _pool(self, kernel: Kernel, features: Features) -> Pool | None:
        if kernel.contraction is not None or features.lanes < MINIMUM_LANES:
            return None
        pool = find_pool(kernel.function)
        return pool if pool is not None and pool.taps_written <= MOST_TAPS_WRITTEN else None


@dataclass(frozen=True, kw_only=True)
class CutAxis:
    """An axis of the result that the window slides along."""

    axis: Axis
    period: int
    segments: tuple[Segment, ...]

    @property
    def copies(self) -> int:
        """How often what is inside its loops is written out."""
        return sum(len(segment.phases) for segment in self.segments)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One reduction over small axes, with at most elementwise work behind it."""

    function: Any
    axes: tuple[Axis, ...]  # of the result, in its order
    cut: tuple[CutAxis, ...]  # of them, those that the window slides along; the last is the result's last
    taps: tuple[Axis, ...]
    start: Any  # the value of no tap
    combined: Any  # the value so far, a load of `result`, with one more tap
    result: Any
    store: Any  # the statement that keeps an element, its value a load of `result`
    store_axes: tuple[Any, ...]

    @property
    def work(self) -> int:
        return math.prod(axis.extent for axis in (*self.axes, *self.taps))

    @property
    def taps_written(self) -> int:
        return math.prod([axis.extent for axis in self.taps] + [cut.copies for cut in self.cut])

    def written(self, *, is_shared: bool) -> Any:
        """The kernel, written out."""
        loops = Loops(str(self.taps[0].variable.ty.dtype))
        planes = [axis for axis in self.axes if not any(axis is cut.axis for cut in self.cut)]
        extents = [axis.extent for axis in planes]

        def plane(number: Any) -> Any:
            places = digits_of(number, extents) if extents else []
            values = {axis.variable: place for axis, place in zip(planes, places, strict=True)}
            return self._along(loops, self.cut, values, {})

        body = loops.loop("plane", math.prod(extents), plane, PARALLEL if is_shared else SERIAL)
        original = self.function
        return tirx.PrimFunc(original.params, body, original.ret_type, original.attrs).without_attr("global_symbol")

    def _along(
        self, loops: Loops, left: Sequence[CutAxis], values: Mapping[Any, Any], ranges: Mapping[Any, int]
    ) -> Any:
        """What is to be done for each place of the axes that are `left`."""
        if not left:
            return self._element(loops, values, ranges)
        cut, *inner = left

        def segment(part: Segment) -> Any:
            count = part.end - part.first

            def body(number: Any) -> Any:
                bound = {**ranges, number: count} if count > 1 else ranges
                first = (number + part.first) * cut.period
                return sequence(
                    *(self._along(loops, inner, {**values, cut.axis.variable: first + p}, bound) for p in part.phases)
                )

            return loops.loop("place", count, body)

        return sequence(*map(segment, cut.segments))

    def _element(self, loops: Loops, values: Mapping[Any, Any], ranges: Mapping[Any, int]) -> Any:
        analyzer = tvm.sym.Analyzer()
        for variable, extent in ranges.items():
            analyzer.bind(variable, tvm.ir.Range(0, extent))
        total = self.start
        for taps in itertools.product(*(range(axis.extent) for axis in self.taps)):
            numbers = {axis.variable: loops.number(tap) for axis, tap in zip(self.taps, taps, strict=True)}
            step = analyzer.simplify(replaced(self.combined, {**values, **numbers}))
            total = _with_result(step, self.result, total)
        places = [values[axis.variable] for axis in self.axes]
        store = replaced(self.store, dict(zip(self.store_axes, places, strict=True)))
        indices = [analyzer.simplify(index) for index in store.indices]
        value = _with_result(analyzer.simplify(store.value), self.result, total)
        return tirx.BufferStore(store.buffer, value, indices)


def _with_result(expression: Any, result: Any, value: Any) -> Any:
    """The expression with `value` for every load of the buffer `result`."""
    return tvm_ffi.structural_map(expression, (TensorLoad, lambda load: value if load.source.same_as(result) else load))


def find_pool(function: Any) -> Pool | None:
    """The reduction of a window that the kernel computes; None for any other kernel."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    schedule = s_tir.Schedule(module)
    try:
        root = schedule.get_sblock("root")
    except (s_tir.ScheduleError, tvm.error.InternalError):
        return None
    inline_all(schedule)
    blocks = [schedule.get(block) for block in schedule.get_child_blocks(root)]
    if len(blocks) not in (1, 2) or not _is_reduction(blocks[0]):
        return None
    if len(blocks) == 2 and not _is_elementwise(blocks[1], blocks[0].body.buffer):
        return None
    return _pool(schedule.mod["main"], blocks)


def _pool(function: Any, blocks: Sequence[Any]) -> Pool | None:
    block = blocks[0]
    axes = [Axis(variable=a.var, extent=int(a.dom.extent)) for a in block.iter_vars if int(a.iter_type) == _SPATIAL]
    taps = [Axis(variable=a.var, extent=int(a.dom.extent)) for a in block.iter_vars if int(a.iter_type) == _REDUCE]
    value = block.body.value
    sliding = [axis for axis in axes if any(_meet(index, axis, taps) for index in _indices(value))]
    if not sliding or sliding[-1] is not axes[-1] or math.prod(tap.extent for tap in taps) > MOST_TAPS_WRITTEN:
        return None
    periods = [period_of(value, axis) for axis in sliding]
    if max(periods) > MOST_PHASES:
        return None
    cut = tuple(
        CutAxis(axis=axis, period=period, segments=tuple(segments_of(value, axis, period, taps)))
        for axis, period in zip(sliding, periods, strict=True)
    )
    last = blocks[-1]
    is_alone = len(blocks) == 1
    return Pool(
        function=function,
        axes=tuple(axes),
        cut=cut,
        taps=tuple(taps),
        start=block.init.value,
        combined=value,
        result=block.body.buffer,
        store=tirx.BufferStore(block.body.buffer, block.body.buffer[tuple(block.body.indices)], block.body.indices)
        if is_alone
        else last.body,
        store_axes=tuple(axis.variable for axis in axes) if is_alone else tuple(a.var for a in last.iter_vars),
    )


def _is_reduction(block: Any) -> bool:
    """Whether the block reduces something to one element for each place, in the order of its axes."""
    if not isinstance(block.body, tirx.BufferStore) or not isinstance(block.init, tirx.BufferStore):
        return False
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    places = [axis.var for axis in block.iter_vars if int(axis.iter_type) == _SPATIAL]
    return _REDUCE in kinds and set(kinds) <= {_SPATIAL, _REDUCE} and _are_same(block.body.indices, places)


def _is_elementwise(block: Any, result: Any) -> bool:
    """Whether the block makes one element of each of `result`, at the same place."""
    if any(int(axis.iter_type) != _SPATIAL for axis in block.iter_vars) or not isinstance(block.body, tirx.BufferStore):
        return False
    places = [axis.var for axis in block.iter_vars]
    loads = [load for load in _loads(block.body.value) if load.source.same_as(result)]
    return bool(loads) and all(_are_same(load.indices, places) for load in loads)


def _are_same(indices: Sequence[Any], variables: Sequence[Any]) -> bool:
    return len(indices) == len(variables) and all(i.same_as(v) for i, v in zip(indices, variables, strict=True))


def _meet(index: Any, axis: Axis, taps: Sequence[Axis]) -> bool:
    return uses(index, axis.variable) and any(uses(index, tap.variable) for tap in taps)


def _loads(expression: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (TensorLoad, found.append))
    return found


def _indices(expression: Any) -> Iterator[Any]:
    for load in _loads(expression):
        yield from load.indices
