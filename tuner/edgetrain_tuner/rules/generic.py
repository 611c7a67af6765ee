"""The rule that fits every kernel: inline, run outer loops in parallel, keep one contiguous loop innermost.

The innermost loop is left to LLVM's vectoriser, which masks the conditions of padding by itself and takes loops of any
length. So the rule only chooses which loop is innermost: one along which accesses are contiguous, with the reduction
outside it, or else a contiguous reduction, which LLVM may reassociate (deterministically).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.machine import Caches, Machine
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names

PARAMETERS = ("spatial", "tile", "parallel")
_TILE_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.iter_type


class Generic:
    """The rule; it never declines. A kernel written as plain loops, without blocks, stays as it is.

    Each parameter has a number for each block: the length of the innermost loop where it is split off a longer one
    (0: it is not), whether threads share the outermost loop, whether an output axis runs innermost.
    """

    name = "generic"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters:
        blocks = _blocks(kernel, machine)
        spatial = tuple(int(block.prefers_spatial) for block in blocks)
        return {
            "spatial": spatial,
            "tile": tuple(block.tile(s, machine) for block, s in zip(blocks, spatial, strict=True)),
            "parallel": tuple(
                int(machine.cores > 1 and b.work >= machine.thresholds.parallel_iterations) for b in blocks
            ),
        }

    def choices(self, kernel: Kernel, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
        """The proposal with one block's number changed."""
        blocks = _blocks(kernel, machine)
        proposed = {**self.propose(kernel, machine), **before}
        found = [proposed[name]]
        for number, block in enumerate(blocks):
            values = {
                "spatial": block.spatial_choices,
                "tile": _tile_choices(block.run(proposed["spatial"][number]), machine.caches),
                "parallel": (0, 1) if machine.cores > 1 else (0,),
            }[name]
            found += [(*found[0][:number], value, *found[0][number + 1 :]) for value in values]
        return sorted(set(found))

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._checked(_blocks(kernel, machine), machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        work = _Work.on(kernel)
        if work is None:
            require_names(parameters, PARAMETERS)
            return kernel.function
        blocks, schedule = work.blocks(machine), work.schedule
        self._checked(blocks, machine, parameters)
        done: set[str] = set()
        for number, block in enumerate(blocks):
            if block.name in done:
                continue
            choice = _Choice(**{name: parameters[name][number] for name in PARAMETERS})
            try:
                done |= _schedule_block(schedule, block, choice, machine)
            except s_tir.ScheduleError:  # every primitive is valid by itself: the block keeps what was done so far
                continue
        return schedule.mod["main"].without_attr("global_symbol")

    def finishes_elements(self, kernel: Kernel, machine: Machine) -> bool:
        """Whether the proposal computes all later blocks for each tile of the first one, a sum."""
        work = _Work.on(kernel)
        if work is None:
            return False
        first, *behind = work.blocks(machine)
        proposed = self.propose(kernel, machine)
        choice = _Choice(**{name: proposed[name][0] for name in PARAMETERS})
        try:
            return _schedule_block(work.schedule, first, choice, machine) == {block.name for block in behind}
        except s_tir.ScheduleError:
            return False

    def _checked(self, blocks: Sequence[_Block], machine: Machine, parameters: Parameters) -> None:
        require_names(parameters, PARAMETERS)
        for name in PARAMETERS:
            if len(parameters[name]) != len(blocks):
                raise ScheduleRefusedError(f"{name} has {len(parameters[name])} numbers for {len(blocks)} blocks")
        for number, block in enumerate(blocks):
            spatial, tile, parallel = (parameters[name][number] for name in PARAMETERS)
            if spatial not in block.spatial_choices:
                raise ScheduleRefusedError(f"block {number} has no such innermost loop")
            if tile < 0 or (tile and block.run(spatial) % tile):
                raise ScheduleRefusedError(f"block {number}'s innermost loop of {block.run(spatial)} has no {tile}")
            if parallel not in (0, 1) or (parallel and machine.cores == 1):
                raise ScheduleRefusedError(f"block {number} is not shared among {machine.cores} cores")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A block's numbers."""

    spatial: int
    tile: int
    parallel: int


@dataclass(frozen=True, kw_only=True)
class _Access:
    """One buffer access: index expressions and the buffer's shape."""

    indices: tuple[Any, ...]
    shape: tuple[int, ...]


def _accesses(block: Any) -> list[_Access]:
    """Every load and store in a block's body."""
    found: list[_Access] = []

    def visit(node: Any) -> None:
        buffer = node.source if isinstance(node, TensorLoad) else node.buffer
        found.append(_Access(indices=tuple(node.indices), shape=tuple(int(d) for d in buffer.ty.shape)))

    tvm_ffi.structural_walk(block.body, ((TensorLoad, tirx.BufferStore), visit))
    return found


def _uses(expr: Any, variables: Sequence[Any]) -> bool:
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        found = found or any(node.same_as(v) for v in variables)

    tvm_ffi.structural_walk(expr, (tirx.Var, visit))
    return found


@dataclass(frozen=True, kw_only=True)
class _Block:
    """What the rule knows of a block before it is scheduled."""

    reference: Any
    name: str
    is_plain: bool  # one loop for each axis; a block that is not was scheduled by hand
    spatial: tuple[int, ...]  # positions of its axes
    reduce: tuple[int, ...]
    spatial_tail: int  # how many of the last axes run through memory as one
    reduce_tail: int
    spatial_run: int  # how long that run is
    prefers_spatial: bool
    work: int

    @property
    def spatial_choices(self) -> tuple[int, ...]:
        if not self.is_plain or not self.spatial:
            return (0,)
        return (0, 1) if self.reduce else (1,)

    def run(self, spatial: int) -> int:
        """The innermost loop that a tile may be split off; 1 where there is none."""
        return self.spatial_run if spatial else 1

    def tile(self, spatial: int, machine: Machine) -> int:
        """The proposed tile. Without sums to keep near, a machine without vectors gets one loop, not two: less code."""
        return 0 if machine.lanes == 1 and not self.reduce else _default_tile(self.run(spatial), machine.caches)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """A kernel under scheduling. `original` is held on to: otherwise TVM changes the caller's kernel in place."""

    original: Any
    schedule: Any

    @staticmethod
    def on(kernel: Kernel) -> _Work | None:
        """With all inlined that can be; None for a kernel without blocks."""
        if kernel.inlined is None:
            return None
        module = tvm.IRModule({"main": kernel.inlined})
        return _Work(original=module, schedule=s_tir.Schedule(module))

    def blocks(self, machine: Machine) -> list[_Block]:
        root = self.schedule.get_sblock("root")
        return [_block(self.schedule, block, machine) for block in self.schedule.get_child_blocks(root)]


def _blocks(kernel: Kernel, machine: Machine) -> list[_Block]:
    work = _Work.on(kernel)
    return [] if work is None else work.blocks(machine)


def _block(schedule: Any, block: Any, machine: Machine) -> _Block:
    info = schedule.get(block)
    loops = schedule.get_loops(block)
    axes = list(info.iter_vars)
    spatial = tuple(i for i, a in enumerate(axes) if int(a.iter_type) == _SPATIAL)
    reduce = tuple(i for i, a in enumerate(axes) if int(a.iter_type) == _REDUCE)
    is_plain = bool(loops) and len(axes) == len(loops) == len(spatial) + len(reduce)
    accesses = _accesses(info) if is_plain else []
    tails = [_fusible_tail([axes[i] for i in group], accesses) for group in (spatial, reduce)]
    spatial_run = math.prod(int(axes[i].dom.extent) for i in spatial[-tails[0] :])
    is_long = spatial_run >= machine.thresholds.vector_run
    return _Block(
        reference=block,
        name=info.name_hint,
        is_plain=is_plain,
        spatial=spatial,
        reduce=reduce,
        spatial_tail=tails[0],
        reduce_tail=tails[1],
        spatial_run=spatial_run,
        prefers_spatial=is_plain
        and bool(spatial)
        and (not reduce or (is_long and _prefers_spatial(axes, spatial, reduce, accesses))),
        work=math.prod(int(a.dom.extent) for a in axes),
    )


def _prefers_spatial(
    axes: Sequence[Any], spatial: Sequence[int], reduce: Sequence[int], accesses: Sequence[_Access]
) -> bool:
    """Whether the last output axis, rather than the last reduction axis, should run innermost."""
    along_output = _strided_accesses(axes[spatial[-1]].var, accesses)
    along_reduction = _strided_accesses(axes[reduce[-1]].var, accesses)
    return along_output <= along_reduction


def _fusible_tail(axes: Sequence[Any], accesses: Sequence[_Access]) -> int:
    """How many of the last axes run through memory as one: in every access they are the whole tail, or absent."""
    best = 1
    for count in range(2, len(axes) + 1):
        tail = [a.var for a in axes[-count:]]
        extents = [int(a.dom.extent) for a in axes[-count:]]
        if not all(_runs_as_one(access, tail, extents) for access in accesses):
            break
        best = count
    return best


def _runs_as_one(access: _Access, tail: Sequence[Any], extents: Sequence[int]) -> bool:
    if not any(_uses(i, tail) for i in access.indices):
        return True
    if len(access.indices) < len(tail) or any(_uses(i, tail) for i in access.indices[: -len(tail)]):
        return False
    same = all(i.same_as(v) for i, v in zip(access.indices[-len(tail) :], tail, strict=True))
    return same and list(access.shape[-len(tail) + 1 :]) == list(extents[1:])


def _strided_accesses(variable: Any, accesses: Sequence[_Access]) -> int:
    """Accesses that jump in memory when `variable` moves by one."""
    count = 0
    for access in accesses:
        used = [_uses(i, [variable]) for i in access.indices]
        if not any(used):
            continue
        contiguous = used[-1] and not any(used[:-1]) and _step(access.indices[-1], variable) == 1
        count += not contiguous
    return count


def _step(index: Any, variable: Any) -> int | None:
    """The coefficient of `variable` in `index`, where it is linear."""
    coefficients = tvm.sym.detect_linear_equation(index, [variable])
    if not coefficients or not isinstance(coefficients[0], tirx.IntImm):
        return None
    return int(coefficients[0])


def _schedule_block(schedule: Any, block: _Block, choice: _Choice, machine: Machine) -> set[str]:
    """Schedules one block; returns the names of the later blocks it took along."""
    if not block.is_plain:
        return set()
    loops = schedule.get_loops(block.reference)
    outer = [loops[i] for i in block.spatial]
    inner: list[Any] = []
    reduction = [loops[i] for i in block.reduce]
    if choice.spatial:
        outer, inner = _split_tail(schedule, outer, block.spatial_tail, choice.tile)
        _reorder(schedule, [*outer, *reduction, *inner])
    elif reduction:
        _reorder(schedule, [*outer, *reduction])
        if block.reduce_tail > 1:
            reduction = [*reduction[: -block.reduce_tail], schedule.fuse(*reduction[-block.reduce_tail :])]
    outermost = schedule.fuse(*outer) if len(outer) > 1 else outer[0] if outer else None
    if outermost is not None and choice.parallel:
        schedule.parallel(outermost)
    if not reduction:
        return set()
    tile = math.prod(int(schedule.get(loop).extent) for loop in inner)
    fits_a_stack = outermost is not None and tile <= machine.limits.stack_elements
    taken = _take_epilogue(schedule, block.reference, outermost) if fits_a_stack else set()
    schedule.decompose_reduction(block.reference, reduction[0])
    return taken


def _take_epilogue(schedule: Any, block: Any, loop: Any) -> set[str]:
    """Computes the elementwise consumers of a reduction tile by tile, so that only a tile of it is stored."""
    taken = {schedule.get(block).name_hint}
    waiting = list(schedule.get_consumers(block))
    while waiting:
        consumer = waiting.pop(0)
        name = schedule.get(consumer).name_hint
        producers = {schedule.get(producer).name_hint for producer in schedule.get_producers(consumer)}
        is_elementwise = all(int(a.iter_type) == _SPATIAL for a in schedule.get(consumer).iter_vars)
        if name in taken or not producers <= taken or not is_elementwise:
            continue  # one that reads two of them comes again behind the second
        try:
            schedule.reverse_compute_at(consumer, loop)
        except s_tir.ScheduleError:
            continue
        taken.add(name)
        waiting += schedule.get_consumers(consumer)
    return taken - {schedule.get(block).name_hint}


def _split_tail(schedule: Any, loops: Sequence[Any], tail: int, tile: int) -> tuple[list[Any], list[Any]]:
    """The last `tail` loops fused to one and, where a tile is asked for, split by it."""
    fused = schedule.fuse(*loops[-tail:]) if tail > 1 else loops[-1]
    outer = list(loops[:-tail])
    if not tile:
        return outer, [fused]
    before, inside = schedule.split(fused, [None, tile])
    return [*outer, before], [inside]


def _default_tile(extent: int, caches: Caches) -> int:
    """The largest divisor of a long loop that the cache keeps, unless that is small; 0 where it is not split."""
    tile = max((d for d in range(1, caches.inner_loop + 1) if extent % d == 0), default=1)
    return 0 if extent <= caches.inner_loop or tile < caches.least_inner_loop else tile


def _tile_choices(extent: int, caches: Caches) -> list[int]:
    """Divisors about evenly spaced in the logarithm, none of them so long that it fits no first-level cache."""
    divisors = [d for d in range(caches.least_inner_loop, min(extent, 8 * caches.inner_loop)) if extent % d == 0]
    nearest = {min(divisors, key=lambda d: abs(math.log2(d / size))) for size in _TILE_SIZES if divisors}
    return sorted({0, _default_tile(extent, caches), *nearest})


def _reorder(schedule: Any, loops: Sequence[Any]) -> None:
    if len(loops) > 1:
        schedule.reorder(*loops)
