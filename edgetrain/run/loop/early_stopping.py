"""The best epoch so far, and when to stop waiting for a better one."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The epoch to keep so far; `stale_epochs` counts the epochs since the metric last rose above all before.

    `loss` is the validation loss of that epoch: of equal metrics the lower loss decides. Checkpoints of version 0.1
    have none. `ties` counts the epochs with the same metric, this one included.
    """

    value: float
    step: int
    epoch: int
    stale_epochs: int = 0
    loss: float | None = None
    ties: int = 1


def judge(
    best: Best | None,
    *,
    value: float,
    step: int,
    epoch: int,
    higher_is_better: bool,
    least_gain: float = 0.0,
    loss: float | None = None,
) -> Best:
    """The best after one more validation. Of equal metrics the epoch with the lower loss is kept, then the earlier.

    A tie is kept and is still no gain: patience counts on, or a metric that has reached its top would never end a run.
    """
    if best is None:
        return Best(value=value, step=step, epoch=epoch, loss=loss)
    gain = value - best.value if higher_is_better else best.value - value
    if gain > least_gain:
        return Best(value=value, step=step, epoch=epoch, loss=loss)
    stale, ties = best.stale_epochs + 1, best.ties + (gain == 0)
    if gain == 0 and loss is not None and best.loss is not None and loss < best.loss:
        return Best(value=value, step=step, epoch=epoch, loss=loss, stale_epochs=stale, ties=ties)
    return replace(best, stale_epochs=stale, ties=ties)


def reason_to_keep(best: Best, *, metric: str, higher_is_better: bool) -> str:
    """Why the parameters of that epoch are kept, in words."""
    name = metric.replace("_", " ")
    text = f"the {'highest' if higher_is_better else 'lowest'} validation {name}, {best.value:.4g}"
    if best.ties > 1:
        decided = "it has the lowest loss" if best.loss is not None else "it is the first"
        text += f"; {best.ties} epochs tie there, and {decided}"
    return text
