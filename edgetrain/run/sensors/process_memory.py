"""What the operating system says about this process's memory. Each answer is a measurement, or `None`."""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
_ROLLUP = Path("/proc/self/smaps_rollup")
_MAPPINGS = Path("/proc/self/smaps")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): sets VmHWM to the present VmRSS


# Linux counts pages on each core and adds up when a core has this many (`percpu_counter_batch`), in three counters:
# anonymous pages, pages of files, shared ones. The highest mark is a sum of what they said at that moment.
_COUNTED_TOGETHER = 32
_COUNTERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """What of a process is in memory, page by page."""

    anonymous_bytes: int  # its own
    file_bytes: Mapping[str, int]  # of what it maps, by device and inode

    def growth_since(self, before: Resident) -> int:
        """Its own pages, and those of files that were not mapped then.

        Of a file that was mapped already, such as the interpreter's libraries, the system drops pages and reads them
        again whenever it likes: that is no growth.
        """
        new = sum(size for file, size in self.file_bytes.items() if file not in before.file_bytes)
        return self.anonymous_bytes - before.anonymous_bytes + new

    def dropped_since(self, before: Resident) -> int:
        """How much less there is of the files that were mapped then."""
        return sum(max(0, size - self.file_bytes.get(file, 0)) for file, size in before.file_bytes.items())


def resident() -> Resident | None:
    """What of this process is in memory now; `None` where the system does not say."""
    anonymous_bytes, file_bytes = 0, Counter[str]()
    file, mapped_bytes = "", 0
    try:
        with _MAPPINGS.open() as lines:
            for line in lines:
                words = line.split()
                if words[0] == "Rss:":
                    mapped_bytes = int(words[1]) * 1024
                elif words[0] == "Anonymous:":
                    own_bytes = int(words[1]) * 1024
                    anonymous_bytes += own_bytes
                    if file:
                        file_bytes[file] += mapped_bytes - own_bytes
                elif "-" in words[0]:  # addresses, permissions, offset, device, inode, path
                    file = f"{words[3]} {words[4]}" if words[4] != "0" else ""
    except OSError:
        return None
    return Resident(anonymous_bytes=anonymous_bytes, file_bytes=file_bytes)


def resident_bytes() -> int | None:
    """Bytes of this process that are in memory now, page by page; `None` where the system does not say."""
    return _kibibytes(_ROLLUP, "Rss")


def grown_bytes(before: Resident | None, *, given_back_bytes: int = 0) -> int | None:
    """The most that this process has grown by since `before`, when `reset_peak` was called; `None` where nobody knows.

    What is in memory now is counted page by page. The system's highest mark is rough: of what was there for a while
    only more than its error counts. Of that, the caller may know `given_back_bytes`.
    """
    present, peak, now = resident(), _kibibytes(_STATUS, "VmHWM"), _kibibytes(_STATUS, "VmRSS")
    if before is None or present is None or peak is None or now is None:
        return None
    cores = os.cpu_count() or 1
    error_bytes = _COUNTERS * max(_COUNTED_TOGETHER, 2 * cores) * cores * mmap.PAGESIZE
    gone_bytes = peak - now - present.dropped_since(before)
    passing_bytes = gone_bytes if gone_bytes > error_bytes else 0
    return present.growth_since(before) + max(passing_bytes, given_back_bytes)


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
