"""A curve of any length in memory of a fixed size: neighbours join where there are too many."""

from __future__ import annotations

from array import array

from edgetrain.run.files.plot import Point

_MOST_RUNS = 400


class ThinnedCurve:
    """Keeps of each run of neighbours the lowest and the highest point, for a spike is what a reader looks for.

    All its memory is there from the start: while a run is measured, none of it counts as the program's.
    """

    def __init__(self, most_runs: int = _MOST_RUNS) -> None:
        self._most = most_runs - most_runs % 2  # so that all join in pairs
        self._width = 1  # points that one run stands for
        self._count = 0  # of runs
        self._filled = 0  # points in the last of them
        empty = array("d", bytes(8 * self._most))
        self._low_x, self._low_y, self._high_x, self._high_y = (array("d", empty) for _ in range(4))

    def add(self, x: float, y: float) -> None:
        """The next point; `x` rises."""
        if self._count and self._filled < self._width:
            last = self._count - 1
            if y < self._low_y[last]:
                self._low_x[last], self._low_y[last] = x, y
            if y > self._high_y[last]:
                self._high_x[last], self._high_y[last] = x, y
            self._filled += 1
            return
        if self._count == self._most:
            self._join()
        new = self._count
        self._low_x[new] = self._high_x[new] = x
        self._low_y[new] = self._high_y[new] = y
        self._count, self._filled = new + 1, 1

    def _join(self) -> None:
        """Half as many runs, each twice as long. Called with full runs only."""
        for new in range(self._most // 2):
            first, second = 2 * new, 2 * new + 1
            low = first if self._low_y[first] <= self._low_y[second] else second
            high = first if self._high_y[first] >= self._high_y[second] else second
            self._low_x[new], self._low_y[new] = self._low_x[low], self._low_y[low]
            self._high_x[new], self._high_y[new] = self._high_x[high], self._high_y[high]
        self._count //= 2
        self._width *= 2

    @property
    def points(self) -> tuple[Point, ...]:
        """By their x, at most two for each run."""
        found: list[Point] = []
        for i in range(self._count):
            found += sorted({(self._low_x[i], self._low_y[i]), (self._high_x[i], self._high_y[i])})
        return tuple(found)
