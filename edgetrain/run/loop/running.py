"""Numbers about a run of any length, in memory of a fixed size."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from statistics import median

_LATEST_STEPS = 1024  # enough for a median, and 8 KiB


class ExactSum:
    """A sum without rounding: however many values are added, `value` is what `math.fsum` gives for all of them.

    Shewchuk's algorithm, as in `math.fsum`: a few parts that do not overlap hold the exact sum. With `parts` of
    another sum it goes on as that one, to the same bits.
    """

    def __init__(self, parts: Iterable[float] = ()) -> None:
        self._parts = list(parts)

    @property
    def parts(self) -> tuple[float, ...]:
        return tuple(self._parts)

    @property
    def value(self) -> float:
        return math.fsum(self._parts)

    def add(self, value: float) -> None:
        """Only finite numbers."""
        kept = 0
        for part in self._parts:
            larger, smaller = (value, part) if abs(value) >= abs(part) else (part, value)
            total = larger + smaller
            lost = smaller - (total - larger)
            if lost:
                self._parts[kept] = lost
                kept += 1
            value = total
        self._parts[kept:] = [value]


class StepSeconds:
    """The median time of the latest steps under one plan: of all of them, or of the last 1,024 where there are more."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self._next = 0  # where the next one goes once the room is used up
        self._is_of_older_plan = False

    def add(self, seconds: float) -> None:
        if self._is_of_older_plan:
            del self._seconds[:]
            self._next, self._is_of_older_plan = 0, False
        if len(self._seconds) < _LATEST_STEPS:
            self._seconds.append(seconds)
        else:
            self._seconds[self._next] = seconds
            self._next = (self._next + 1) % _LATEST_STEPS

    def begin_plan(self) -> None:
        """Another plan runs from here on. Until it has taken a step, the median stays that of the one before."""
        self._is_of_older_plan = True

    @property
    def median(self) -> float | None:
        """None where no step was taken."""
        return median(self._seconds) if self._seconds else None
