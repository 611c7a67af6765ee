"""What the operating system says about this process's memory. Each answer is a measurement, or `None`."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): sets VmHWM to the present VmRSS


def resident_bytes() -> int | None:
    """Bytes of this process that are in memory now; `None` where the system does not say (not Linux)."""
    return _status_bytes("VmRSS")


def peak_resident_bytes() -> int | None:
    """The most that was ever in memory, or since `reset_peak`; `None` where the system does not say."""
    return _status_bytes("VmHWM")


def reset_peak() -> bool:
    """Starts `peak_resident_bytes` anew from the present. False where that cannot be done: then the peak is of the
    whole life of the process."""
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _status_bytes(field: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024  # the unit is always kB, and means KiB
    return None
