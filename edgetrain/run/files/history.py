"""What a run was like, step by step, read from its log: whatever its length, in memory of a fixed size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.run.files.checkpoint import Validation
from edgetrain.run.files.plot import Point, thin
from edgetrain.run.files.thinned import ThinnedCurve
from edgetrain.run.loop.step_log import VALIDATION, read_records

# More than a chart can show. A run of fewer steps or validations is here with all of them.
MOST_STEPS = 10_000
MOST_VALIDATIONS = 2_000
_OF_THE_EVENT = frozenset({"step", "event", "epoch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """The losses with their steps, and the validations, both in order.

    Of a longer run the first and the last loss are here, and of each stretch of steps the lowest and the highest; of
    the validations every second, or fourth, and so on, with the last one.
    """

    steps: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()
    validations: tuple[Validation, ...] = ()

    @property
    def loss_steps(self) -> tuple[int, ...]:
        """Empty where the losses are those of all steps from the first on."""
        return () if self.steps == tuple(range(1, len(self.steps) + 1)) else self.steps


def read_history(
    path: Path,
    *,
    best_step: int | None = None,
    most_steps: int = MOST_STEPS,
    most_validations: int = MOST_VALIDATIONS,
) -> RunHistory:
    """The history that the log at `path` tells; the validation of `best_step` is among those kept.

    A log that was removed tells nothing, and a torn one what stands before the tear: no run fails for it.
    """
    curve = ThinnedCurve(most_steps)
    validations = ThinnedValidations(most_validations, best_step=best_step)
    ends: list[Point] = []
    count = 0
    for record in read_records(path):
        try:
            if record.get("event") == VALIDATION:
                validations.add(_validation(record))
            elif "event" not in record:
                point = (_finite(record["step"]), _finite(record["loss"]))
                curve.add(*point)
                ends[1:] = [point]
                count += 1
        except (KeyError, TypeError, ValueError, OverflowError):
            break
    points: Iterable[Point] = curve.points
    if count > most_steps:
        points = sorted({*thin(curve.points, most_steps - len(ends)), *ends})
    return RunHistory(
        steps=tuple(int(step) for step, _ in points),
        losses=tuple(loss for _, loss in points),
        validations=validations.kept,
    )


def _validation(record: Mapping[str, Any]) -> Validation:
    metrics = {name: _finite(value) for name, value in record.items() if name not in _OF_THE_EVENT}
    return Validation(epoch=int(record["epoch"]), step=int(record["step"]), metrics=metrics)


def _finite(value: Any) -> float:
    """The log holds no other numbers. Raises `ValueError`, or as `float` does."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"`{value}` is not finite")
    return number


class ThinnedValidations:
    """At most so many of any number of validations: every one, then every second, every fourth.

    The last is always kept, and so is the best. One of a step that is there already takes its place.
    """

    def __init__(self, most: int = MOST_VALIDATIONS, *, best_step: int | None = None) -> None:
        self._most = most
        self._best_step = best_step
        self._best: Validation | None = None
        self._last: Validation | None = None
        self._kept: list[Validation] = []
        self._stride = 1
        self._count = 0

    def add(self, validation: Validation) -> None:
        """The next one; steps rise, but for those that a run lists again."""
        if validation.step == self._best_step:
            self._best = validation
        if self._last is not None and validation.step <= self._last.step:
            return
        self._last = validation
        if self._count % self._stride == 0:
            if len(self._kept) == self._most:
                self._kept = self._kept[::2]
                self._stride *= 2
            if self._count % self._stride == 0:
                self._kept.append(validation)
        self._count += 1

    @property
    def kept(self) -> tuple[Validation, ...]:
        chosen = {v.step: v for v in (*self._kept, self._best, self._last) if v is not None}
        return tuple(chosen[step] for step in sorted(chosen))
