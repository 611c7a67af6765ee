"""A wall clock that jumps while a process runs, for the processes that are started with its environment."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_name("jumping_clock.c")
_SECONDS = struct.Struct("=q")


class JumpingClock:
    """Moved by `jump`; what runs with `environment` sees it at once."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._file = folder / "clock"
        self._library = library
        self.jump(0)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), "EDGETRAIN_SOAK_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """The wall clock is so many seconds ahead of the real one from now on, or behind it."""
        with self._file.open("r+b" if self._file.exists() else "w+b") as file:  # in place: it is mapped
            file.write(_SECONDS.pack(seconds))


def build_clock(folder: Path) -> Path:
    """The library that moves the clock, compiled by the C compiler that comes with edgetrain."""
    library = folder / "jumping_clock.so"
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return library
