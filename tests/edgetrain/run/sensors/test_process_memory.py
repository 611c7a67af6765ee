"""The operating system's word on this process's memory."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from edgetrain.run.sensors import process_memory
from edgetrain.run.sensors.process_memory import Resident, grown_bytes, reset_peak, resident, resident_bytes

_TOUCHED_BYTES = 32 << 20
_PAGES = 40  # fewer than the system's own counters tell apart
_NOISE = 16  # pages that Python may take meanwhile

linux_only = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")


def touched(nbytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, nbytes, mmap.PAGESIZE):
        memory[page] = 1
    return memory


@linux_only
def test_the_peak_keeps_what_was_given_back_until_it_is_reset() -> None:
    if not reset_peak():
        pytest.skip("this kernel cannot reset the peak")
    before = resident()
    touched(_TOUCHED_BYTES).close()
    grown = grown_bytes(before)
    assert grown is not None
    assert grown == pytest.approx(_TOUCHED_BYTES, rel=0.1)
    reset_peak()
    after_reset = grown_bytes(before)
    assert after_reset is not None
    assert after_reset < _TOUCHED_BYTES // 2


@linux_only
def test_what_is_still_there_is_counted_page_by_page() -> None:
    resident_bytes()
    before = resident_bytes()
    with touched(_PAGES * mmap.PAGESIZE):
        after = resident_bytes()
    assert before is not None
    assert after is not None
    assert _PAGES <= (after - before) / mmap.PAGESIZE < _PAGES + _NOISE


@linux_only
def test_what_the_caller_gave_back_counts() -> None:
    reset_peak()
    before = resident()
    assert grown_bytes(before, given_back_bytes=_PAGES * mmap.PAGESIZE) == pytest.approx(
        _PAGES * mmap.PAGESIZE, abs=8 * mmap.PAGESIZE
    )


@linux_only
def test_a_file_counts_from_when_it_is_mapped_and_not_again_when_the_system_reads_it_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"1" * _PAGES * mmap.PAGESIZE)
    resident()
    before = resident()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)  # nothing is read ahead
        assert sum(mapped[page] for page in range(0, len(mapped), mmap.PAGESIZE)) == _PAGES * ord("1")
        read = resident()
        assert before is not None
        assert read is not None
        assert _PAGES <= read.growth_since(before) / mmap.PAGESIZE < _PAGES + _NOISE
        mapped.madvise(mmap.MADV_DONTNEED)
        dropped = resident()
        assert dropped is not None
        assert dropped.dropped_since(read) >= _PAGES * mmap.PAGESIZE
        assert sum(mapped[page] for page in range(0, len(mapped), mmap.PAGESIZE)) == _PAGES * ord("1")
        again = resident()
    assert again is not None
    assert again.growth_since(dropped) < _NOISE * mmap.PAGESIZE
    assert again.growth_since(read) < _NOISE * mmap.PAGESIZE


def test_a_system_without_proc_says_none_and_false(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_memory, "_STATUS", tmp_path / "status")
    monkeypatch.setattr(process_memory, "_ROLLUP", tmp_path / "rollup")
    monkeypatch.setattr(process_memory, "_MAPPINGS", tmp_path / "smaps")
    monkeypatch.setattr(process_memory, "_CLEAR_REFS", tmp_path / "no" / "clear_refs")
    assert resident_bytes() is None
    assert resident() is None
    assert grown_bytes(Resident(anonymous_bytes=0, file_bytes={})) is None
    assert reset_peak() is False
