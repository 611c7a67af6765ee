"""The learning rate of every step, as a pure function: a resumed run needs no state to go on exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgetrain.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRate:
    """`peak` is reached after `warmup_steps`, then `schedule` leads down to `peak * final_fraction`.

    `step_every` and `step_gamma` belong to the schedule `step`: every so many steps, times gamma.
    """

    peak: float
    schedule: str = "constant"
    warmup_steps: int = 0
    final_fraction: float = 0.0
    step_every: int = 0
    step_gamma: float = 0.1

    def __post_init__(self) -> None:
        mistakes = [
            message
            for is_wrong, message in (
                (not (math.isfinite(self.peak) and self.peak > 0), f"the learning rate {self.peak} is not above 0"),
                (self.schedule not in SCHEDULES, f"`{self.schedule}` is not a learning-rate schedule"),
                (self.warmup_steps < 0, f"{self.warmup_steps} warm-up steps are fewer than none"),
                (not 0 <= self.final_fraction <= 1, f"the final fraction {self.final_fraction} is not within 0 and 1"),
                (self.schedule == "step" and self.step_every < 1, "the schedule `step` needs step_every of 1 or more"),
                (not 0 < self.step_gamma <= 1, f"step_gamma = {self.step_gamma} is not within 0 and 1"),
            )
            if is_wrong
        ]
        if mistakes:
            raise UsageError("; ".join(mistakes), fix=f"schedules are {', '.join(f'`{s}`' for s in SCHEDULES)}")


def _constant(_settings: LearningRate, _done: int, _total: int) -> float:
    return 1.0


def _linear(_settings: LearningRate, done: int, total: int) -> float:
    return 1.0 - done / total


def _cosine(_settings: LearningRate, done: int, total: int) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * done / total))


def _step(settings: LearningRate, done: int, _total: int) -> float:
    return settings.step_gamma ** (done // settings.step_every)


# From the steps done after the warm-up, of those in all, to how far the rate still is from its final value: 1 is the
# peak, 0 is `peak * final_fraction`.
SCHEDULES: Mapping[str, Callable[[LearningRate, int, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "step": _step,
}


def learning_rate(settings: LearningRate, step: int, *, total_steps: int) -> float:
    """The rate of step `step`, counted from 0, of `total_steps`. Above 0 at every one of them.

    Warm-up is linear and its first step is not 0: a step that changes nothing would be a step wasted.
    """
    if step < settings.warmup_steps:
        return settings.peak * (step + 1) / settings.warmup_steps
    total = max(1, total_steps - settings.warmup_steps)
    share = SCHEDULES[settings.schedule](settings, min(step - settings.warmup_steps, total), total)
    return settings.peak * (settings.final_fraction + (1.0 - settings.final_fraction) * share)
