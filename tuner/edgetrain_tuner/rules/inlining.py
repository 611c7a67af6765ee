"""Inlining: what every rule does first, so that a fused kernel's intermediates need no memory."""

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


def inlined(function: Any) -> Inlined | None:
    """None for a kernel of plain loops, without blocks."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    schedule = s_tir.Schedule(module)
    try:
        root = schedule.get_sblock("root")
    except (s_tir.ScheduleError, tvm.error.InternalError):
        return None
    inline_all(schedule)
    blocks = tuple(schedule.get(block) for block in schedule.get_child_blocks(root))
    return Inlined(function=schedule.mod["main"], blocks=blocks)


def inline_all(schedule: Any, unless: Callable[[Any, Any], bool] = lambda _schedule, _block: False) -> None:
    """Inlines every block that can be, into its consumers or its producer; `unless` says which to leave."""
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
