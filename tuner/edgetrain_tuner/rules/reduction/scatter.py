"""The rule for the gradient of a lookup (embedding), with the update behind it: row after row.

    total[b, row(k), a] += value(b, k, a), from zero, for every lookup k

Unscheduled, such a kernel clears the whole table, then adds to the rows that were looked up, and an update reads the
table a third time. Here the lookups are sorted by row first. Then the sum of a row is one line that stays in the cache,
rows are independent of each other, and a table that only the update reads is never stored.

The sort is stable: the values of a row are added in the order of k, so every sum is the same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Axis, Epilogue, epilogue_of, is_known, replaced
from edgetrain_tuner.rules.inlining import inlined
from edgetrain_tuner.rules.loops import Loops, digits_of, sequence
from edgetrain_tuner.rules.reduction.form import analyzer_of, loads_of
from edgetrain_tuner.rules.rule import Kernel, on_log_grid
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names

PARAMETERS = ("tasks",)
_SPATIAL, _OPAQUE = 0, 4  # tirx.IterVar.iter_type
_NUMBER = "int32"  # of what is sorted


class Scatter:
    """The rule. It declines other kernels, short rows, and where one core has no table to spare.

    `tasks` run side by side: each has some of the rows, or some columns of all of them.
    """

    name = "scatter"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        scattering = _scattering(kernel)
        if scattering is None:
            return None
        is_shared = scattering.work >= machine.thresholds.parallel_iterations
        tasks = _numbers_of_tasks(scattering, machine)[-1] if is_shared else 1
        return {"tasks": (tasks,)} if scattering.is_worth_sorting(tasks, machine) else None

    def choices(self, kernel: Kernel, machine: Machine, _name: str, _before: Parameters) -> Sequence[Values]:
        scattering = _scattering(kernel)
        return [] if scattering is None else [(tasks,) for tasks in _numbers_of_tasks(scattering, machine)]

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._checked(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        scattering = self._checked(kernel, machine, parameters)
        (tasks,) = parameters["tasks"]
        return _Writer(scattering, tasks, machine).function()

    def _checked(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Scattering:
        require_names(parameters, PARAMETERS)
        scattering = _scattering(kernel)
        if scattering is None:
            raise ScheduleRefusedError("the kernel adds nothing to rows that are looked up")
        if parameters["tasks"] not in self.choices(kernel, machine, "tasks", {}):
            raise ScheduleRefusedError(f"no {list(parameters['tasks'])} tasks on {machine.cores} cores")
        return scattering


@dataclass(frozen=True, kw_only=True)
class Scattering:
    """A kernel of the form above, in which b stands for any number of axes."""

    function: Any
    total: Any  # the buffer of the sums
    outer: tuple[Axis, ...]  # b
    lookups: Axis  # k
    inner: Axis  # a
    rows: int
    row: Any  # an expression of k alone, never out of bounds
    value: Any
    epilogue: Epilogue | None  # what is done with the sums

    @cached_property
    def is_kept(self) -> bool:
        """Whether the kernel's caller gets the sums."""
        return any(self.total.same_as(parameter) for parameter in self.function.params)

    @property
    def lines(self) -> int:
        """Rows of all b."""
        return self.rows * math.prod(axis.extent for axis in self.outer)

    @property
    def work(self) -> int:
        """Elements that are computed or added."""
        added = self.lookups.extent * self.lines // self.rows
        return (self.lines + added) * self.inner.extent

    def parts(self, tasks: int, machine: Machine) -> int:
        """Into how many parts the columns are cut.

        Where there are more lookups than rows, one row may be most of the work: then tasks share each row.
        """
        # Two tasks that write in one line of the cache wait for each other.
        has_lines = self.inner.extent % (tasks * machine.caches.line_elements) == 0
        is_cut = self.lookups.extent > self.rows and has_lines
        return tasks if is_cut else 1

    def is_worth_sorting(self, tasks: int, machine: Machine) -> bool:
        """Whether tasks can share the work, or at least the sort takes less memory than the table that it spares."""
        if self.inner.extent < machine.thresholds.sorted_columns:
            return False
        scratch = self.rows + 1 + self.lookups.extent + self.inner.extent
        return tasks > 1 or (not self.is_kept and scratch < self.lines * self.inner.extent)

    def stores(self, place: Sequence[Any], value: Any) -> list[Any]:
        """What is done with the sum of a place."""
        kept = [tirx.BufferStore(self.total, value, list(place))] if self.is_kept else []
        return kept + (self.epilogue.at(place, value) if self.epilogue else [])

    def rewritten(self, body: Any) -> Any:
        """The kernel with another body."""
        original = self.function
        return tirx.PrimFunc(original.params, body, original.ret_type, original.attrs).without_attr("global_symbol")


def _numbers_of_tasks(scattering: Scattering, machine: Machine) -> list[int]:
    """Numbers of tasks, growing, of which none is without work."""
    return [n for n in on_log_grid(machine.cores) if n <= scattering.parts(n, machine) * scattering.lines]


class _Writer:
    """Writes the loops. Row r's lookups are `order[start[r]:start[r + 1]]`; a task's `line` is its sum."""

    def __init__(self, scattering: Scattering, tasks: int, machine: Machine) -> None:
        self._s = s = scattering
        self._tasks, self._parts = tasks, s.parts(tasks, machine)
        self._width = s.inner.extent // self._parts
        self._dtype = str(s.total.ty.dtype)
        self._loops = Loops(str(s.lookups.variable.ty.dtype))
        self._start = tirx.decl_buffer((s.rows + 1,), _NUMBER, "start")
        self._order = tirx.decl_buffer((s.lookups.extent,), _NUMBER, "order")
        line = machine.caches.line_elements
        apart = -(-self._width // line) * line if tasks > 1 else self._width
        self._line = tirx.decl_buffer((tasks, apart), self._dtype, "line")

    def function(self) -> Any:
        jobs = self._parts * self._s.lines
        rows = self._loops.distribute(jobs, self._tasks, lambda _task: [], self._job)
        allocations = [tirx.AllocBuffer(buffer) for buffer in (self._start, self._order, self._line)]
        return self._s.rewritten(sequence(*allocations, *self._sort(), rows))

    def _sort(self) -> list[Any]:
        """A counting sort. `start` holds the count of each row, then where its lookups end, then where they begin."""
        loop, rows, count = self._loops.loop, self._s.rows, self._s.lookups.extent

        def one_more(lookup: Any) -> Any:
            row = self._row_of(lookup)
            return tirx.BufferStore(self._start, self._start[row] + 1, [row])

        def added_up(row: Any) -> Any:
            return tirx.BufferStore(self._start, self._start[row + 1] + self._start[row], [row + 1])

        def placed(step: Any) -> Any:
            lookup = (count - 1) - step  # the last first: rows are filled from their ends
            row = self._row_of(lookup)
            return sequence(
                tirx.BufferStore(self._start, self._start[row] - 1, [row]),
                tirx.BufferStore(self._order, tirx.Cast(_NUMBER, lookup), [self._loaded(self._start, row)]),
            )

        return [
            loop("row", rows + 1, lambda row: tirx.BufferStore(self._start, tirx.IntImm(_NUMBER, 0), [row])),
            loop("lookup", count, one_more),
            loop("row", rows, added_up),
            loop("lookup", count, placed),
        ]

    def _row_of(self, lookup: Any) -> Any:
        return tirx.Cast(self._loops.dtype, replaced(self._s.row, {self._s.lookups.variable: lookup}))

    def _loaded(self, buffer: Any, index: Any) -> Any:
        """A sorted number, as an index."""
        return tirx.Cast(self._loops.dtype, buffer[index])

    def _job(self, task: Any, which: Any) -> Any:
        """One row, or a part of its columns: cleared, summed up, used."""
        s = self._s
        part, *outer, row = digits_of(which, (self._parts, *(axis.extent for axis in s.outer), s.rows))
        values = {axis.variable: place for axis, place in zip(s.outer, outer, strict=True)}
        begin = self._loaded(self._start, row)

        def along(body: Callable[[Any, Any], Any]) -> Any:
            return self._loops.loop("column", self._width, lambda at: body(at, part * self._width + at))

        def cleared(at: Any, _column: Any) -> Any:
            return tirx.BufferStore(self._line, tirx.const(0, self._dtype), [task, at])

        def lookup(number: Any) -> Any:
            known = {**values, s.lookups.variable: self._loaded(self._order, begin + number)}

            def added(at: Any, column: Any) -> Any:
                value = replaced(s.value, {**known, s.inner.variable: column})
                return tirx.BufferStore(self._line, self._line[task, at] + value, [task, at])

            return along(added)

        def used(at: Any, column: Any) -> Any:
            return sequence(*s.stores([*outer, row, column], self._line[task, at]))

        count = self._loaded(self._start, row + 1) - begin
        return sequence(along(cleared), self._loops.loop("lookup", count, lookup), along(used))


def _scattering(kernel: Kernel) -> Scattering | None:
    if kernel.contraction is not None:
        return None
    found: Scattering | None = kernel.derived("scatter", lambda: find_scattering(kernel.function))
    return found


def find_scattering(function: Any) -> Scattering | None:
    """The scattering that the kernel computes, with at most elementwise work behind it; None for any other kernel."""
    if not _has_opaque_axis(function):  # nearly all kernels: there is no need to inline anything
        return None
    kernel = inlined(function)
    if kernel is None or len(kernel.blocks) < 2:
        return None
    zero, add, *behind = kernel.blocks
    epilogue = epilogue_of(kernel.function, behind, add) if behind else None
    found = _added(kernel.function, add, epilogue)
    if found is None or not _clears(zero, found.total) or not (found.is_kept or epilogue):
        return None
    return None if behind and epilogue is None else found


def _has_opaque_axis(function: Any) -> bool:
    kinds: list[int] = []

    def visit(block: Any) -> None:
        kinds.extend(int(axis.iter_type) for axis in block.iter_vars)

    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, visit))
    return _OPAQUE in kinds


def _added(function: Any, block: Any, epilogue: Epilogue | None) -> Scattering | None:
    """The form of a block that adds to looked-up rows; None if it does anything else."""
    body, axes = block.body, [axis for axis in block.iter_vars if int(axis.iter_type) == _SPATIAL]
    opaque = [axis for axis in block.iter_vars if int(axis.iter_type) == _OPAQUE]
    if len(opaque) != 1 or len(axes) + 1 != len(block.iter_vars) or not isinstance(body, tirx.BufferStore):
        return None
    value, shape = _added_value(body), _extents(body.buffer.ty.shape)
    if value is None or not axes or len(axes) + 1 != len(shape):
        return None
    *outer, row, inner = body.indices
    places = [axis for index in (*outer, inner) for axis in axes if index.same_as(axis.var)]
    is_whole = [int(axis.dom.extent) for axis in places] == [*shape[:-2], shape[-1]]
    if not is_whole or len({axis.var for axis in places}) != len(axes):
        return None
    *before, last, lookups = (Axis(variable=axis.var, extent=int(axis.dom.extent)) for axis in (*places, *opaque))
    if not _is_inside(row, lookups, shape[-2]):
        return None
    return Scattering(
        function=function,
        total=body.buffer,
        outer=tuple(before),
        lookups=lookups,
        inner=last,
        rows=shape[-2],
        row=row,
        value=value,
        epilogue=epilogue,
    )


def _added_value(store: Any) -> Any | None:
    """What the store adds to what has been there."""
    if not isinstance(store.value, tirx.Add) or not isinstance(store.value.a, TensorLoad):
        return None
    before, value = store.value.a, store.value.b
    is_there = before.source.same_as(store.buffer) and all(map(tvm_ffi.structural_equal, before.indices, store.indices))
    reads_more = any(load.source.same_as(store.buffer) for load in loads_of(value))
    return value if is_there and not reads_more else None


def _is_inside(row: Any, lookups: Axis, rows: int) -> bool:
    """Whether the row depends on the lookup alone, and exists whatever is looked up."""
    if not is_known(row, {lookups.variable: 0}):
        return False
    analyzer = analyzer_of({lookups.variable: lookups.extent})
    return bool(analyzer.can_prove(tirx.all(row >= 0, row < rows)))


def _clears(block: Any, total: Any) -> bool:
    """Whether the block sets every element of `total` to zero."""
    body, axes = block.body, block.iter_vars
    if not isinstance(body, tirx.BufferStore) or not body.buffer.same_as(total):
        return False
    is_zero = isinstance(body.value, tirx.FloatImm | tirx.IntImm) and float(body.value.value) == 0.0
    is_whole = [int(axis.dom.extent) for axis in axes] == _extents(total.ty.shape)
    return is_zero and is_whole and all(i.same_as(a.var) for i, a in zip(body.indices, axes, strict=True))


def _extents(shape: Sequence[Any]) -> list[int]:
    return [int(extent) for extent in shape]
