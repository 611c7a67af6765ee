"""The best epoch so far, and when to stop waiting for a better one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best validation so far; `stale_epochs` counts the epochs since that did not beat it."""

    value: float
    step: int
    epoch: int
    stale_epochs: int = 0


def judge(
    best: Best | None, *, value: float, step: int, epoch: int, higher_is_better: bool, least_gain: float = 0.0
) -> Best:
    """The best after one more validation. A tie is not a gain: of equals, the earliest is kept."""
    if best is None:
        return Best(value=value, step=step, epoch=epoch)
    gain = value - best.value if higher_is_better else best.value - value
    if gain > least_gain:
        return Best(value=value, step=step, epoch=epoch)
    return Best(value=best.value, step=best.step, epoch=best.epoch, stale_epochs=best.stale_epochs + 1)
