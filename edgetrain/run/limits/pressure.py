"""A limit that follows the system: less memory when it runs short, more again when it has had room for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from edgetrain.free_memory import MemoryReading
from edgetrain.run.limits.ladder import Ladder, Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureSettings:
    """When memory is short, and when it no longer is. Assumptions, not measurements."""

    reserve_share: float = 0.05  # of all memory: left for everybody else
    least_reserve_bytes: int = 32 << 20
    stalled_share: float = 0.10
    room_factor: float = 1.5  # times the reserve must be left after going up, so that going up does not go down again
    calm_s: float = 30.0  # that long, without a break
    period_s: float = 1.0  # the files are not read more often

    def reserve_bytes(self, reading: MemoryReading) -> int:
        return max(self.least_reserve_bytes, int(self.reserve_share * reading.total_bytes))


class PressureLimit:
    """Satisfies the governor's `Limit`. None while memory was never short."""

    cause = "pressure"
    is_budget = False

    def __init__(
        self,
        read: Callable[[], MemoryReading | None],
        settings: PressureSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._settings = settings or PressureSettings()
        self._clock = clock
        self._read_at = -float("inf")
        self._calm_since: float | None = None
        self._ceiling_bytes: int | None = None

    def allowance(self, ladder: Ladder, rung: Rung) -> int | None:
        now = self._clock()
        if now - self._read_at < self._settings.period_s:
            return self._ceiling_bytes
        self._read_at = now
        reading = self._read()
        if reading is not None:
            self._judge(reading, ladder, rung, now)
        return self._ceiling_bytes

    def reserve(self, nbytes: int) -> bool:
        del nbytes
        return True

    def settle(self, nbytes: int) -> None:
        """Nobody is told: the system sees for itself."""

    def _judge(self, reading: MemoryReading, ladder: Ladder, rung: Rung, now: float) -> None:
        reserve = self._settings.reserve_bytes(reading)
        missing = reserve - reading.available_bytes
        if missing > 0 or reading.stalled_share > self._settings.stalled_share:
            lower = ladder.best_within(rung.needed_bytes - max(1, missing)) or ladder.lowest
            self._ceiling_bytes, self._calm_since = lower.needed_bytes, None
            return
        if self._ceiling_bytes is None:
            return
        above = ladder.above(rung)
        growth = above.needed_bytes - rung.needed_bytes if above is not None else 0
        if reading.available_bytes - growth < self._settings.room_factor * reserve:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= self._settings.calm_s:
            self._ceiling_bytes = max(self._ceiling_bytes, above.needed_bytes) if above is not None else None
            self._calm_since = now  # one rung at a time
