"""How fast a folder's disk is, past the system's cache, as paging uses it."""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROBE_BYTES = 32 << 20
_SMALL_TRANSFERS = 32
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSpeed:
    """`is_direct` is whether the system's cache was left out; through it, reading is faster than the disk."""

    read_bytes_per_s: float
    write_bytes_per_s: float
    latency_s: float  # of a transfer of one page
    is_direct: bool


def probe_storage(folder: Path, *, nbytes: int = PROBE_BYTES, rounds: int = _ROUNDS) -> StorageSpeed:
    """Medians over some rounds of one large write and one large read of a file that is gone afterwards.

    Raises `OSError` when the disk refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="edgetrain-probe-") as file:
        handle, is_direct = _open_directly(file.name)
        try:
            with mmap.mmap(-1, nbytes) as buffer:  # page-aligned, as direct transfers want it
                buffer.write(os.urandom(mmap.PAGESIZE) * (nbytes // mmap.PAGESIZE))  # a disk may compress zeros
                writes, reads = [], []
                small = memoryview(buffer)[: mmap.PAGESIZE]
                waits = [_seconds(lambda: os.pwrite(handle, small, 0)) for _ in range(_SMALL_TRANSFERS)]
                waits += [_seconds(lambda: os.preadv(handle, [small], 0)) for _ in range(_SMALL_TRANSFERS)]
                small.release()
                for _ in range(rounds):
                    writes.append(_seconds(lambda: _write(handle, buffer)))
                    reads.append(_seconds(lambda: os.preadv(handle, [buffer], 0)))
        finally:
            os.close(handle)
    return StorageSpeed(
        read_bytes_per_s=nbytes / statistics.median(reads),
        write_bytes_per_s=nbytes / statistics.median(writes),
        latency_s=statistics.median(waits),
        is_direct=is_direct,
    )


def _open_directly(path: str) -> tuple[int, bool]:
    direct = getattr(os, "O_DIRECT", 0)
    if direct:
        try:
            return os.open(path, os.O_RDWR | direct), True
        except OSError:  # a filesystem without direct transfers
            pass
    return os.open(path, os.O_RDWR), False


def _write(handle: int, buffer: mmap.mmap) -> None:
    os.pwrite(handle, buffer, 0)
    os.fsync(handle)


def _seconds(do: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    do()
    return time.perf_counter() - started_s
