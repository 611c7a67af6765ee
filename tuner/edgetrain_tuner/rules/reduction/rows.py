"""The rule for softmax and its like: all steps of one row are computed while the row is in the cache.

Such a kernel reduces rows, computes elements from the result, and may do so again: a maximum, exponentials, their sum,
the quotients. Step by step, each would go through memory. Here a row goes through all steps before the next row begins.
What is costly and read twice, such as an exponential, is kept for one row; other rules would compute it twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.inlining import inlined
from edgetrain_tuner.rules.reduction.form import loads_of
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names

PARAMETERS = ("parallel",)
_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.iter_type


class Rows:
    """The rule. It declines kernels that do not reduce rows and end in their elements, and rows too long to be kept."""

    name = "rows"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        rows = _rows(kernel, machine)
        if rows is None:
            return None
        is_long = rows.count * rows.length >= machine.thresholds.parallel_iterations
        return {"parallel": (int(machine.cores > 1 and is_long),)}

    def choices(self, kernel: Kernel, machine: Machine, _name: str, _before: Parameters) -> Sequence[Values]:
        if _rows(kernel, machine) is None:
            return []
        return [(0,), (1,)] if machine.cores > 1 else [(0,)]

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._checked(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        rows = self._checked(kernel, machine, parameters)
        module = tvm.IRModule({"main": rows.function})  # held on to: otherwise TVM changes the function in place
        schedule = s_tir.Schedule(module)
        _write(schedule, rows, machine, is_parallel=bool(parameters["parallel"][0]))
        return schedule.mod["main"].without_attr("global_symbol")

    def _checked(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> _Rows:
        require_names(parameters, PARAMETERS)
        rows = _rows(kernel, machine)
        if rows is None:
            raise ScheduleRefusedError("the kernel does not work on rows")
        if parameters["parallel"] not in self.choices(kernel, machine, "parallel", {}):
            raise ScheduleRefusedError(f"rows are not shared among {machine.cores} cores")
        return rows


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """A kernel of which every block works on the same rows."""

    function: Any  # with everything inlined but what is costly and read twice
    blocks: tuple[str, ...]
    axes: int  # how many of the first axes number the rows
    depth: int  # axes in all
    count: int
    length: int


def _rows(kernel: Kernel, machine: Machine) -> _Rows | None:
    if kernel.contraction is not None or not machine.has_vectors:
        return None
    found: _Rows | None = kernel.derived(("rows", machine), lambda: _writable(kernel.function, machine))
    return found


def _writable(function: Any, machine: Machine) -> _Rows | None:
    """The rows of a kernel, if TVM's primitives accept the schedule: they check more than we do."""
    rows = _analysed(function, machine)
    if rows is None:
        return None
    module = tvm.IRModule({"main": rows.function})
    schedule = s_tir.Schedule(module)
    if any(len(schedule.get_loops(schedule.get_sblock(name))) != rows.depth for name in rows.blocks):
        return None  # scheduled by hand
    try:
        _write(schedule, rows, machine, is_parallel=False)
    except s_tir.ScheduleError:
        return None
    return rows


def _analysed(function: Any, machine: Machine) -> _Rows | None:
    kernel = inlined(function, unless=_is_costly_and_read_twice)
    if kernel is None or not kernel.blocks:
        return None
    blocks = kernel.blocks
    axes = _shared_axes(blocks, function.params)
    if axes is None:
        return None
    extents = [int(axis.dom.extent) for axis in blocks[-1].iter_vars]
    length = math.prod(extents[axes:])
    kept = sum(not _is_reduction(block) for block in blocks[:-1])
    if length == 1 or kept * length > machine.limits.stack_elements:
        return None
    return _Rows(
        function=kernel.function,
        blocks=tuple(block.name_hint for block in blocks),
        axes=axes,
        depth=len(extents),
        count=math.prod(extents[:axes]),
        length=length,
    )


def _is_costly_and_read_twice(schedule: Any, reference: Any) -> bool:
    calls: list[Any] = []
    tvm_ffi.structural_walk(schedule.get(reference).body, (Call, calls.append))
    return bool(calls) and len(schedule.get_consumers(reference)) > 1


def _is_reduction(block: Any) -> bool:
    return any(int(axis.iter_type) == _REDUCE for axis in block.iter_vars)


def _shared_axes(blocks: Sequence[Any], outside: Sequence[Any]) -> int | None:
    """How many first axes all blocks have in common, which number the rows; None where blocks do not work on rows.

    The last block makes the elements of whole rows, and at least one before it reduces them. What they hand on to it
    nobody reads `outside`.
    """
    last = blocks[-1]
    if len(blocks) < 2 or _is_reduction(last) or not any(_is_reduction(block) for block in blocks):
        return None
    if not all(isinstance(block.body, tirx.BufferStore) for block in blocks):
        return None
    inner = [block.body.buffer for block in blocks[:-1]]
    if any(buffer.same_as(parameter) for buffer in inner for parameter in outside):
        return None
    reductions = [block for block in blocks if _is_reduction(block)]
    spatial = {tuple(int(a.dom.extent) for a in b.iter_vars if int(a.iter_type) == _SPATIAL) for b in reductions}
    whole = tuple(int(axis.dom.extent) for axis in last.iter_vars)
    rows = next(iter(spatial))
    if len(spatial) != 1 or not 0 < len(rows) < len(whole):
        return None
    if not all(_works_on_rows(block, rows, whole) and _reads_its_row(block, len(rows), inner) for block in blocks):
        return None
    return len(rows)


def _works_on_rows(block: Any, rows: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether the block's axes are those of the rows, then those of their elements, written in order."""
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    extents = tuple(int(axis.dom.extent) for axis in block.iter_vars)
    expected = _REDUCE if _REDUCE in kinds else _SPATIAL
    if extents != whole or kinds != [_SPATIAL] * len(rows) + [expected] * (len(whole) - len(rows)):
        return False
    written = block.body.indices
    places = [axis.var for axis in block.iter_vars]
    expected_places = places[: len(rows)] if _REDUCE in kinds else places
    return len(written) == len(expected_places) and all(
        index.same_as(place) for index, place in zip(written, expected_places, strict=True)
    )


def _reads_its_row(block: Any, axes: int, inner: Sequence[Any]) -> bool:
    """Whether the block reads only its own row of what blocks before it computed."""
    places = [axis.var for axis in block.iter_vars][:axes]
    return all(
        all(index.same_as(place) for index, place in zip(load.indices[:axes], places, strict=True))
        for load in loads_of(block.body)
        if any(load.source.same_as(buffer) for buffer in inner)
    )


def _write(schedule: Any, rows: _Rows, machine: Machine, *, is_parallel: bool) -> None:
    *before, last = [schedule.get_sblock(name) for name in rows.blocks]
    loops = schedule.get_loops(last)
    row = schedule.fuse(*loops[: rows.axes]) if rows.axes > 1 else loops[0]
    lanes = math.gcd(rows.length, machine.lanes)
    is_wide = lanes >= machine.thresholds.vector_lanes
    for block in reversed(before):
        partial = _in_lanes(schedule, block, rows.axes, lanes) if is_wide else None
        schedule.compute_at(block, row)
        if partial is not None:
            schedule.compute_at(partial, row)
    if is_parallel:
        schedule.parallel(row)
    for block in before:
        info = schedule.get(block)
        if _is_reduction(info):
            schedule.decompose_reduction(block, schedule.get_loops(block)[1])


def _in_lanes(schedule: Any, block: Any, axes: int, lanes: int) -> Any | None:
    """A block that reduces to the maximum, or minimum, of each lane; the given block then reduces the lanes.

    LLVM makes a sum into one of vectors by itself, but takes extremes one element at a time, because of NaN.
    """
    info = schedule.get(block)
    if not _is_reduction(info) or not isinstance(info.body.value, tirx.Max | tirx.Min):
        return None
    taps = schedule.get_loops(block)[axes:]
    fused = schedule.fuse(*taps) if len(taps) > 1 else taps[0]
    _, lane = schedule.split(fused, [None, lanes])
    return schedule.rfactor(lane, len(info.body.indices))
