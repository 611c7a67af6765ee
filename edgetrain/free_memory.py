"""How much memory this process may still take: the system's free memory, its control groups' limits, its own limit.

Linux says how short memory is in three ways, and all are asked: what is available at all (`MemAvailable`), what the
process's control groups have left below their limits, and how much time tasks lost waiting for memory (PSI).
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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


def address_space_bytes() -> int | None:
    """What the limit on addresses (`ulimit -v`) gives a process; None without one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
