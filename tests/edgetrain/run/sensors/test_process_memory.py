"""The operating system's word on this process's memory."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from edgetrain.run.sensors import process_memory
from edgetrain.run.sensors.process_memory import peak_resident_bytes, reset_peak, resident_bytes

_TOUCHED_BYTES = 32 << 20

linux_only = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")


def _touch() -> None:
    with mmap.mmap(-1, _TOUCHED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for page in range(0, _TOUCHED_BYTES, mmap.PAGESIZE):
            memory[page] = 1


@linux_only
def test_the_peak_keeps_what_was_given_back_until_it_is_reset() -> None:
    before = resident_bytes()
    assert before is not None
    _touch()
    after_touch = peak_resident_bytes()
    assert after_touch is not None
    assert after_touch >= before + _TOUCHED_BYTES // 2
    if not reset_peak():
        pytest.skip("this kernel cannot reset the peak")
    after_reset = peak_resident_bytes()
    assert after_reset is not None
    assert after_reset < after_touch


def test_a_system_without_proc_says_none_and_false(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_memory, "_STATUS", tmp_path / "status")
    monkeypatch.setattr(process_memory, "_CLEAR_REFS", tmp_path / "no" / "clear_refs")
    assert resident_bytes() is None
    assert peak_resident_bytes() is None
    assert reset_peak() is False
