"""Inlines the intermediates of a fused kernel, so that they need no memory: the first step of every rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir


@dataclass(frozen=True, kw_only=True)
class Inlined:
    """A kernel with everything inlined that can be, and the blocks that are left, in order."""

    function: Any
    blocks: tuple[Any, ...]


Unless = Callable[[Any, Any], bool]  # of a schedule and a block


def _never(_schedule: Any, _block: Any) -> bool:
    return False


def inlined(function: Any, unless: Unless = _never) -> Inlined | None:
    """None for a kernel of plain loops, without blocks. `unless` says which blocks to leave."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    schedule = s_tir.Schedule(module)
    try:
        root = schedule.get_sblock("root")
    except (s_tir.ScheduleError, tvm.error.InternalError):
        return None
    _inline_all(schedule, unless)
    blocks = tuple(schedule.get(block) for block in schedule.get_child_blocks(root))
    return Inlined(function=schedule.mod["main"], blocks=blocks)


def _inline_all(schedule: Any, unless: Unless) -> None:
    """Inlines every block that can be, into its consumers or its producer."""
    changed = True
    while changed:
        changed = False
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            if unless(schedule, block):
                continue
            for primitive in (schedule.compute_inline, schedule.reverse_compute_inline):
                try:
                    primitive(block)
                except s_tir.ScheduleError:
                    continue
                changed = True
                break
            if changed:
                break
