"""Where a campaign works, and what it brings back."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.soaking.process import Command

_FOLDERS = {"TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "HOME": "home"}
SHORT = ("digits", "train.epochs=1", "data.limit=256", "--threads", "1", "--trial-time", "0s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """So many tries, and each that did not hold in a line. `detail` is more, for the page."""

    tries: int
    wrong: tuple[str, ...]
    detail: str = ""


@dataclass(kw_only=True)
class Ground:
    """Folders of our own, and one short finished run that nobody may change: campaigns copy it."""

    folder: Path
    seed: int
    quick: bool
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def rng(self, campaign: str) -> random.Random:
        return random.Random(f"{self.seed}/{campaign}")

    def new_folder(self, name: str) -> Path:
        path = self.folder / f"{name}-{next(self._numbers)}"
        path.mkdir(parents=True)
        return path

    def places(self, below: Path) -> dict[str, str]:
        """An environment whose caches and temporary files are in `below`."""
        for name in _FOLDERS.values():
            (below / name).mkdir(parents=True, exist_ok=True)
        taken = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "EDGETRAIN_"))}
        return taken | {variable: str(below / name) for variable, name in _FOLDERS.items()}

    @cached_property
    def environment(self) -> Mapping[str, str]:
        return self.places(self.folder / "places")

    @cached_property
    def finished_run(self) -> Path:
        folder = self.new_folder("finished")
        run = self.run(("fit", *SHORT, "--out", str(folder / "run")), cwd=folder)
        if run.code() != 0:
            raise SystemExit(f"the run that campaigns begin with fails: {run.text()}")
        return folder / "run"

    def start(self, words: Sequence[str], *, cwd: Path, environment: Mapping[str, str] | None = None) -> Command:
        told = cwd / f"said-{next(self._numbers)}.err"
        return Command(words, cwd=cwd, environment=environment or self.environment, told=told)

    def run(self, words: Sequence[str], *, cwd: Path, seconds: float = 300.0) -> Command:
        command = self.start(words, cwd=cwd)
        command.wait(seconds)
        return command


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, by its place in the folder; what a command says lies elsewhere."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def unexpected(command: Command, allowed: Sequence[int]) -> list[str]:
    """What a command did that it must not: another exit code, or words of a bug."""
    words = " ".join(command.words)
    wrong = [] if command.code() in allowed else [f"`{words}` ended with {command.code()}: {command.text()[-600:]}"]
    return wrong + [f"`{words}` said `{bug}`" for bug in command.bugs()]
