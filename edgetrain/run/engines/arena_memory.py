"""The arena's memory: one range of addresses for the whole run, of which a plan uses the first part.

Addresses are reserved for the largest plan a run may switch to and cost nothing. What the present plan may use is
readable and writable; the rest, and a page before and after, is not: an access there ends the process instead of
changing somebody's data. The usable part is a mapping of its own, so that its resident size is the program's memory,
exactly; what a smaller plan does not need goes back to the system at once.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterable
from pathlib import Path

from edgetrain.errors import DeviceError, InternalError
from edgetrain.units import show_bytes

_SMAPS = Path("/proc/self/smaps")
_PROT_NONE = 0
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000  # asm-generic, x86 and Arm alike: addresses alone are not charged to anybody
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
_MADV_DONTNEED = 4
_FAILED = ctypes.c_void_p(-1).value


class ArenaMemory:
    """Zeroed private memory of `nbytes`, that can grow to `capacity_bytes` without moving.

    The memory goes with the last view of it, not with this object.
    """

    def __init__(self, nbytes: int, *, reserve_bytes: int = 0) -> None:
        """Raises `DeviceError` where the system has no memory for `nbytes`. A limit on addresses (`ulimit -v`) that
        refuses `reserve_bytes` is no error: then the arena cannot grow."""
        capacity = _whole_pages(max(nbytes, reserve_bytes))
        start = _map(None, capacity + 2 * mmap.PAGESIZE)
        if start is None:
            capacity = _whole_pages(nbytes)
            start = _map(None, capacity + 2 * mmap.PAGESIZE)
        if start is None:
            raise _no_memory(nbytes)
        self.address = start + mmap.PAGESIZE
        self.capacity_bytes = capacity
        self.nbytes = 0
        cells = (ctypes.c_uint8 * capacity).from_address(self.address)
        weakref.finalize(cells, _unmap, start, capacity + 2 * mmap.PAGESIZE).atexit = False
        self._all = memoryview(cells).cast("B")
        self.resize(nbytes)

    @property
    def view(self) -> memoryview:
        return self._all[: self.nbytes]

    def resize(self, nbytes: int) -> None:
        """Makes the first `nbytes` usable, and gives the rest back. What is kept keeps its contents and its place.

        Raises `DeviceError` when the memory cannot be had; then nothing has changed.
        """
        if nbytes > self.capacity_bytes:
            raise DeviceError(
                f"the arena cannot grow to {show_bytes(nbytes)}",
                why=f"the run began with addresses for {show_bytes(self.capacity_bytes)}",
                fix="stop the run, and go on with --resume and the larger --budget",
            )
        old_end, new_end = _whole_pages(self.nbytes) if self.nbytes else 0, _whole_pages(nbytes)
        if new_end > old_end:
            if _libc().mprotect(ctypes.c_void_p(self.address), ctypes.c_size_t(new_end), _READ_WRITE) != 0:
                raise _no_memory(nbytes)
        elif new_end < old_end and _map(self.address + new_end, old_end - new_end) is None:
            raise DeviceError("the arena could not be made smaller", why=os.strerror(ctypes.get_errno()))
        self.nbytes = nbytes

    def give_back(self, first_byte: int) -> None:
        """Returns the pages from `first_byte` on to the system; they read as zero when they are next used.

        The page that `first_byte` is inside of stays.
        """
        start, end = _whole_pages(first_byte) if first_byte else 0, _whole_pages(self.nbytes)
        if start >= end:
            return
        length = ctypes.c_size_t(end - start)
        if _libc().madvise(ctypes.c_void_p(self.address + start), length, _MADV_DONTNEED) != 0:
            raise DeviceError("the arena's memory could not be given back", why=os.strerror(ctypes.get_errno()))

    def bytes_in_use(self) -> int:
        """Resident and swapped-out bytes of the usable part, in whole pages, the last cut to the arena's end.

        Raises `DeviceError` where the system does not say.
        """
        return min(_mapped_bytes_in_use(self.address), self.nbytes)


def _whole_pages(nbytes: int) -> int:
    return -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _map(address: int | None, nbytes: int) -> int | None:
    """Addresses that nobody may touch; those at `address` lose what they held. None where the system refuses."""
    call = _libc().mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    flags = _PRIVATE | (_MAP_FIXED if address is not None else 0)
    found: int | None = call(address, nbytes, _PROT_NONE, flags, -1, 0)
    return None if found == _FAILED else found


def _unmap(start: int, nbytes: int) -> None:
    _libc().munmap(ctypes.c_void_p(start), ctypes.c_size_t(nbytes))


def _no_memory(nbytes: int) -> DeviceError:
    return DeviceError(
        f"no memory for an arena of {show_bytes(nbytes)}",
        why=os.strerror(ctypes.get_errno()),
        fix="free memory, raise the limit (`ulimit -v`, `ulimit -d`), or compile with a smaller --budget",
    )


def _mapped_bytes_in_use(start: int) -> int:
    """Resident plus swapped-out bytes of the mapping that begins at address `start`."""
    # Line by line: the whole text is larger than a small program's arena, and would count as its memory.
    try:
        with _SMAPS.open() as lines:
            return _resident_bytes_after(_header_of(start), lines)
    except OSError as error:
        raise DeviceError("memory cannot be measured on this system", why=str(error)) from error


def _header_of(start: int) -> str:
    """How the line begins that opens the mapping's fields: `7f00-7f01 rw-p ...`, an address padded to eight digits."""
    return f"{start:08x}-"


def _resident_bytes_after(header: str, lines: Iterable[str]) -> int:
    """What of the mapping is in memory or swapped out. Raises `InternalError` if it is not there."""
    remaining = iter(lines)
    if not any(line.startswith(header) for line in remaining):
        raise InternalError(f"the arena at {header[:-1]} is not among the mappings of this process")
    kibibytes = {"Rss:": 0, "Swap:": 0}
    for line in remaining:
        name, *values = line.split()
        if not name.endswith(":"):
            break  # the next mapping
        if name in kibibytes:
            kibibytes[name] = int(values[0])
    return sum(kibibytes.values()) * 1024
