"""A limit that follows the system: less memory when it runs short, more again when it has had room for a while.

Linux says how short it is in three ways, and all are asked: what is available at all (`MemAvailable`), what the
process's control groups have left below their limits, and how much time tasks lost waiting for memory (PSI).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgetrain.run.limits.ladder import Ladder, Rung

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# Limits, use, and what of the use the kernel can drop at once, in cgroup v2 and in v1 (JetPack 4 and 5).
_Names = tuple[tuple[str, ...], str, str]
_V2: _Names = (("memory.max", "memory.high"), "memory.current", "inactive_file")
_V1: _Names = (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """What the system has for this process."""

    available_bytes: int
    total_bytes: int
    stalled_share: float  # of the last ten seconds, in which some task waited for memory


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
            lower = ladder.best_within(rung.planned_peak_bytes - max(1, missing)) or ladder.lowest
            self._ceiling_bytes, self._calm_since = lower.planned_peak_bytes, None
            return
        if self._ceiling_bytes is None:
            return
        above = ladder.above(rung)
        growth = above.planned_peak_bytes - rung.planned_peak_bytes if above is not None else 0
        if reading.available_bytes - growth < self._settings.room_factor * reserve:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= self._settings.calm_s:
            self._ceiling_bytes = max(self._ceiling_bytes, above.planned_peak_bytes) if above is not None else None
            self._calm_since = now  # one rung at a time


def read_memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> MemoryReading | None:
    """What is left for this process now. None where the system does not say (not Linux)."""
    sizes = _numbers(proc / "meminfo")
    if "MemAvailable" not in sizes or "MemTotal" not in sizes:
        return None
    available, total = sizes["MemAvailable"] * 1024, sizes["MemTotal"] * 1024  # "kB" there means KiB
    stalled = _stalled_share(proc / "pressure" / "memory")
    for group, (limits, use, droppable) in _groups(proc, cgroups):
        used = _number(group / use)
        if used is None:
            continue
        used -= _numbers(group / "memory.stat").get(droppable, 0)
        for limit in filter(None, (_number(group / name) for name in limits)):
            available, total = min(available, max(0, limit - used)), min(total, limit)
        stalled = max(stalled, _stalled_share(group / "memory.pressure"))
    return MemoryReading(available_bytes=available, total_bytes=total, stalled_share=stalled)


def _groups(proc: Path, cgroups: Path) -> Iterator[tuple[Path, _Names]]:
    """The control groups that hold this process, innermost first: each may have a limit of its own."""
    for line in _lines(proc / "self" / "cgroup"):
        number, controllers, name = line.split(":", 2)
        if number == "0":
            root, names = cgroups, _V2
        elif "memory" in controllers.split(","):
            root, names = cgroups / "memory", _V1
        else:
            continue
        inner = root / name.lstrip("/")
        for group in (inner, *inner.parents):
            if group.is_relative_to(root):  # inside a container the path may be the host's, and not exist here
                yield group, names


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _number(path: Path) -> int | None:
    """The file's one number; None without the file, or where it says `max`."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _numbers(path: Path) -> dict[str, int]:
    """`Name: 12 kB` and `name 12` alike."""
    words = (line.replace(":", " ").split() for line in _lines(path))
    return {parts[0]: int(parts[1]) for parts in words if len(parts) > 1 and parts[1].isdecimal()}


def _stalled_share(path: Path) -> float:
    for line in _lines(path):
        kind, *fields = line.split()
        values = dict(field.partition("=")[::2] for field in fields)
        if kind == "some" and "avg10" in values:
            return float(values["avg10"]) / 100
    return 0.0
