"""What a command leaves outside of its run folder: nothing among the temporary files, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.edgetrain.cli.conftest import COMMAND, Command
from tests.edgetrain.test_readme import ROOT, blocks

pytestmark = pytest.mark.compile

_PATHS = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tuner")))}


@pytest.fixture
def places(tmp_path: Path) -> Mapping[str, str]:
    """Empty folders for everything that a command may write to besides its working directory."""
    names = {"TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "runtime"}
    for name in (*names.values(), "home", "work"):
        (tmp_path / name).mkdir()
    return {variable: str(tmp_path / name) for variable, name in names.items()} | {"HOME": str(tmp_path / "home")}


def left(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_command_leaves_nothing_but_what_it_keeps_and_the_commands_of_the_page_remove_that(
    command: Command, places: Mapping[str, str], mlp: Path, tmp_path: Path
) -> None:
    """With a search for schedules, whose measuring processes are killed, and a program for another processor.

    Of the page all but `pip uninstall`, which a test of its own installation would need.
    """
    work = tmp_path / "work"
    commands: tuple[tuple[object, ...], ...] = (
        ("fit", "digits", "train.epochs=1", "data.limit=128", "--target", "raspberry-pi-4"),
        ("tune", "digits", "--trials", "2"),
        ("plan", mlp, "train.loss=mse", "update.mode=head", "--budget", "1kB"),
    )
    for words in commands:
        done = command(*words, cwd=work, environment=places)
        assert done.returncode == (3 if words[0] == "plan" else 0), done.stderr
        assert left(places["TMPDIR"]) == [], words
    assert left(str(tmp_path / "home")) == left(places["XDG_CONFIG_HOME"]) == left(places["XDG_RUNTIME_DIR"]) == []
    assert left(places["XDG_CACHE_HOME"]) == ["edgetrain"]
    profile = Path(places["XDG_CONFIG_HOME"]) / "edgetrain" / "targets"
    profile.mkdir(parents=True)
    page = blocks(ROOT / "docs" / "uninstalling.md", "sh")[-1].splitlines()
    assert [line.split()[0] for line in page] == ["edgetrain", "rm", "pip"]
    runs = sorted(path.relative_to(work) for path in work.rglob("*"))
    for line in page[:-1]:
        script = line.replace("edgetrain cache", f"'{COMMAND[0]}' -m edgetrain cache")
        subprocess.run(["sh", "-ec", script], cwd=work, env={**os.environ, **places, **_PATHS}, check=True)
    traces = {name: left(folder) for name, folder in places.items()}
    assert traces == {name: [] for name in places}
    assert sorted(path.relative_to(work) for path in work.rglob("*")) == runs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_while_it_compiles_leaves_no_temporary_files(
    number: signal.Signals, places: Mapping[str, str], tmp_path: Path, command_environment: Mapping[str, str]
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "fit", "digits"],
        cwd=tmp_path / "work",
        env={**command_environment, **places},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    while process.stderr.readline() not in ("building the training graph\n", ""):
        pass
    assert os.listdir(places["TMPDIR"])  # noqa: PTH208  # else it was not stopped in the middle
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert left(places["TMPDIR"]) == []
