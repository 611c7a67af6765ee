"""What a run leaves behind is its owner's alone, whatever the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.planner.plan import Budget
from edgetrain.recipes import load_recipe
from edgetrain.run.files.tensorboard import TensorBoard
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.targets.profile import load_target
from edgetrain.units import parse_bytes

pytestmark = pytest.mark.compile

OVERRIDES = ("train.epochs=1", "data.limit=128", "data.test_limit=32")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


class OpenFiles(Callback):
    """The modes of the files without a name that this process has open in a folder: the pages and the parameters."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.modes: set[int] = set()

    def on_step_end(self, step: int, logs: Logs) -> None:
        for link in Path("/proc/self/fd").iterdir():
            target = link.readlink() if link.is_symlink() else Path()
            if target.parent == self._folder and target.name.endswith(" (deleted)"):
                self.modes.add(stat.S_IMODE(link.stat().st_mode))


def test_nobody_else_reads_a_run_even_without_a_umask(no_umask: None, build_cache: BuildCache, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "digits"
    opened = OpenFiles(folder)
    job = Job(
        recipe=load_recipe("digits", OVERRIDES),
        target=load_target("host"),
        budget=Budget(memory_bytes=parse_bytes("1MB")),
        cache=build_cache,
        threads=2,
    )
    fit(job, folder, callbacks=(opened, TensorBoard(folder / "tensorboard")))
    modes = {path.relative_to(tmp_path): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert opened.modes == {0o600}, "the budget makes the program page"
