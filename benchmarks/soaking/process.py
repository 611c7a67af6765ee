"""An `edgetrain` command as a process of its own, and what the system says of it while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_BUG = ("Traceback (most recent call last)", "internal error", "this is a bug", "Exception ignored in")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A process at one moment."""

    descriptors: int
    resident_bytes: int
    cpu_s: float


def sample(pid: int) -> Sample | None:
    """None where the process has ended, or is about to."""
    try:
        descriptors = len(os.listdir(_PROC / str(pid) / "fd"))  # noqa: PTH208 - names alone
        rollup = (_PROC / str(pid) / "smaps_rollup").read_text()
        times = (_PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    resident = [int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Rss:")]
    if not resident or times[0] == "Z":
        return None
    cpu_s = (int(times[11]) + int(times[12])) / _CLOCK_TICKS
    return Sample(descriptors=descriptors, resident_bytes=resident[0], cpu_s=cpu_s)


def _as_from_a_terminal() -> None:
    """What `nohup` or a shell in the background ignores, a process of a user's terminal does not."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Command:
    """A running command. Its standard output and error are files beside each other."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        told: Path,
        file_limit_bytes: int | None = None,
    ) -> None:
        self.words = tuple(words)
        self.told = told
        before = () if file_limit_bytes is None else ("prlimit", f"--fsize={file_limit_bytes}")
        with told.open("wb") as errors, told.with_suffix(".out").open("wb") as output:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "edgetrain", *words],
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                preexec_fn=_as_from_a_terminal,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def has_begun(self) -> bool:
        """Whether it has said something: from then on it is the command that decides what a signal does."""
        try:
            return self.told.stat().st_size > 0
        except OSError:
            return False

    def code(self) -> int | None:
        return self.process.poll()

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None where it did not end in time, and was killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None

    def bugs(self) -> list[str]:
        """What a user must never see, of what it said."""
        text = self.text()
        return [words for words in _BUG if words in text]

    def text(self) -> str:
        return "".join(p.read_text(errors="replace") for p in (self.told, self.told.with_suffix(".out")) if p.exists())


def edgetrain(
    words: Sequence[str], *, cwd: Path, environment: Mapping[str, str], told: Path, seconds: float = 300.0
) -> Command:
    """The command, run to its end."""
    command = Command(words, cwd=cwd, environment=environment, told=told)
    command.wait(seconds)
    return command


def now_s() -> float:
    return time.monotonic()
