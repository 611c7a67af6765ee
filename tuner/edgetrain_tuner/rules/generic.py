"""The rule that fits every kernel: inline, run outer loops in parallel, keep one contiguous loop innermost.

The innermost loop is left to LLVM's vectoriser, which masks the lane-varying conditions of padding by itself and takes
loops of any length. So the rule's whole art is choosing which loop is innermost: one along which the accesses are
contiguous, with the reduction outside it; or a contiguous reduction, which LLVM may reassociate (deterministically).
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

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.inlining import inline_all

MINIMUM_PARALLEL_WORK = 1 << 15  # loop iterations under which waking threads costs more than it brings
MAXIMUM_TILE = 512  # elements of the innermost loop: its accumulators stay in the first-level cache
MINIMUM_VECTOR_EXTENT = 4
LARGEST_KEPT_TILE = 1024  # elements between a reduction and its epilogue: each thread keeps them on its stack
_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.iter_type


def apply(function: Any, features: Features) -> Any:
    """The scheduled PrimFunc; never None. A kernel written as plain loops, without blocks, stays as it is."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    schedule = s_tir.Schedule(module)
    try:
        schedule.get_sblock("root")
    except (s_tir.ScheduleError, tvm.error.InternalError):
        return function
    inline_all(schedule)
    done: set[str] = set()
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        if schedule.get(block).name_hint in done:
            continue
        try:
            done |= _schedule_block(schedule, block, features)
        except s_tir.ScheduleError:  # every primitive is valid by itself: the block keeps what was done so far
            continue
    return schedule.mod["main"].without_attr("global_symbol")


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


def _schedule_block(schedule: Any, block: Any, features: Features) -> set[str]:
    """Schedules one block; returns the names of the later blocks it took along."""
    info = schedule.get(block)
    loops = schedule.get_loops(block)
    axes = list(info.iter_vars)
    if not loops or len(axes) != len(loops):  # a block that is not one loop an axis was scheduled by hand
        return set()
    accesses = _accesses(info)
    spatial = [i for i, a in enumerate(axes) if int(a.iter_type) == _SPATIAL]
    reduce = [i for i, a in enumerate(axes) if int(a.iter_type) == _REDUCE]
    if len(spatial) + len(reduce) != len(axes):
        return set()
    work = math.prod(int(a.dom.extent) for a in axes)
    outer = [loops[i] for i in spatial]
    inner: list[Any] = []
    reduction = [loops[i] for i in reduce]
    if spatial and (not reduce or _prefer_spatial(axes, spatial, reduce, accesses)):
        tail = _fusible_tail([axes[i] for i in spatial], accesses)
        outer, inner = _split_tail(schedule, outer, tail)
        _reorder(schedule, [*outer, *reduction, *inner])
    elif reduce:
        tail = _fusible_tail([axes[i] for i in reduce], accesses)
        _reorder(schedule, [*outer, *reduction])
        if tail > 1:
            reduction = [*reduction[:-tail], schedule.fuse(*reduction[-tail:])]
    outermost = schedule.fuse(*outer) if len(outer) > 1 else outer[0] if outer else None
    if outermost is not None and features.cores > 1 and work >= MINIMUM_PARALLEL_WORK:
        schedule.parallel(outermost)
    if not reduction:
        return set()
    tile = math.prod(int(schedule.get(loop).extent) for loop in inner)
    fits_a_stack = outermost is not None and tile <= LARGEST_KEPT_TILE
    taken = _take_epilogue(schedule, block, outermost) if fits_a_stack else set()
    schedule.decompose_reduction(block, reduction[0])
    return taken


def _take_epilogue(schedule: Any, block: Any, loop: Any) -> set[str]:
    """Moves the elementwise consumer of a reduction to where its result is fresh: a tile is kept, not the tensor."""
    consumers = schedule.get_consumers(block)
    if len(consumers) != 1 or len(schedule.get_producers(consumers[0])) != 1:
        return set()
    if any(int(a.iter_type) != _SPATIAL for a in schedule.get(consumers[0]).iter_vars):
        return set()
    try:
        schedule.reverse_compute_at(consumers[0], loop)
    except s_tir.ScheduleError:
        return set()
    return {schedule.get(consumers[0]).name_hint}


def _prefer_spatial(
    axes: Sequence[Any], spatial: Sequence[int], reduce: Sequence[int], accesses: Sequence[_Access]
) -> bool:
    """Whether the last output axis, rather than the last reduction axis, should run innermost."""
    tail = _fusible_tail([axes[i] for i in spatial], accesses)
    extent = math.prod(int(axes[i].dom.extent) for i in spatial[-tail:])
    if extent < MINIMUM_VECTOR_EXTENT:
        return False
    along_output = _strided_accesses(axes[spatial[-1]].var, accesses)
    along_reduction = _strided_accesses(axes[reduce[-1]].var, accesses)
    return along_output <= along_reduction


def _split_tail(schedule: Any, loops: Sequence[Any], tail: int) -> tuple[list[Any], list[Any]]:
    """The last `tail` loops fused to one and, where long, split by its largest divisor up to MAXIMUM_TILE."""
    fused = schedule.fuse(*loops[-tail:]) if tail > 1 else loops[-1]
    outer = list(loops[:-tail])
    extent = int(schedule.get(fused).extent)
    tile = max((d for d in range(1, MAXIMUM_TILE + 1) if extent % d == 0), default=1)
    if extent <= MAXIMUM_TILE or tile < MAXIMUM_TILE // 16:
        return outer, [fused]
    before, inside = schedule.split(fused, [None, tile])
    return [*outer, before], [inside]


def _reorder(schedule: Any, loops: Sequence[Any]) -> None:
    if len(loops) > 1:
        schedule.reorder(*loops)
