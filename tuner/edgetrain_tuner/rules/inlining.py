"""Inlining: what every rule does first, so that a fused kernel's intermediates need no memory."""

from __future__ import annotations

from typing import Any

from tvm import s_tir


def inline_all(schedule: Any) -> None:
    """Inlines every block that can be, into its consumers or its producer."""
    changed = True
    while changed:
        changed = False
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            for primitive in (schedule.compute_inline, schedule.reverse_compute_inline):
                try:
                    primitive(block)
                except s_tir.ScheduleError:
                    continue
                changed = True
                break
            if changed:
                break
