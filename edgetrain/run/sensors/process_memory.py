"""What the operating system says about this process's memory. Each answer is a measurement, or `None`."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_STATUS = Path("/proc/self/status")
_ROLLUP = Path("/proc/self/smaps_rollup")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): sets VmHWM to the present VmRSS


# Linux counts a process's pages on each core and adds up when a core has this many: `percpu_counter_batch`.
_COUNTED_TOGETHER = 32


def resident_bytes() -> int | None:
    """Bytes of this process that are in memory now, page by page; `None` where the system does not say."""
    return _kibibytes(_ROLLUP, "Rss")


def grown_bytes(before_bytes: int | None, *, given_back_bytes: int = 0) -> int | None:
    """The most that this process was larger since `reset_peak` than `before_bytes`; `None` where nobody knows.

    What is in memory now is counted page by page. The system's highest mark is rough: of what was there for a while
    only more than its error counts. Of that, the caller may know `given_back_bytes`.
    """
    resident, peak, now = resident_bytes(), _kibibytes(_STATUS, "VmHWM"), _kibibytes(_STATUS, "VmRSS")
    if before_bytes is None or resident is None or peak is None or now is None:
        return None
    cores = os.cpu_count() or 1
    error_bytes = max(_COUNTED_TOGETHER, 2 * cores) * cores * mmap.PAGESIZE
    passing_bytes = peak - now if peak - now > error_bytes else 0
    return resident - before_bytes + max(passing_bytes, given_back_bytes)


def reset_peak() -> bool:
    """Starts the peak of `grown_bytes` anew from the present. False where that cannot be done: then the peak is of the
    whole life of the process."""
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _kibibytes(path: Path, field: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024  # the unit is always kB, and means KiB
    return None
