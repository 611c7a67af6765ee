"""How work that takes long reports its progress."""

from __future__ import annotations

from collections.abc import Callable

# Called with the stage, what is done of it and how much there is (0: unknown). An exact solver counts seconds of its
# time limit.
ReportProgress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""
