"""Runs that begin at the same time, each a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.run.files.checkpoint import NEWEST, read_header
from edgetrain.run.files.folders import is_free
from edgetrain.run.limits.exchange import is_running
from tests.edgetrain.cli.conftest import COMMAND, PLANNABLE, SHORT, Command
from tests.edgetrain.cli.live_runs import running, wait_until

pytestmark = pytest.mark.compile


def started(folder: Path, environment: Mapping[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "fit", *SHORT, *words],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_each_of_several_runs_has_a_folder_of_its_own(
    short_run: Path, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    processes = [started(tmp_path, command_environment, f"train.seed={seed}") for seed in range(3)]
    told = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], told
    folders = [tmp_path / out.rpartition("run folder: ")[2].strip() for out, _ in told]
    assert sorted(folder.name for folder in folders) == ["digits", "digits-2", "digits-3"]
    for seed, folder in enumerate(folders):
        assert json.loads((folder / "report.json").read_text())["seed"] == seed
        assert read_header(folder / NEWEST).progress.seed == seed


def test_no_file_that_a_run_writes_is_written_over_in_a_folder_of_the_users(short_run: Path, tmp_path: Path) -> None:
    names = {path.name for path in short_run.iterdir()} - {"program", "run.lock"}  # neither is ever replaced
    assert {"data.json", "report.html", "epochs.csv"} < names
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("mine")
        assert not is_free(folder), name


def test_of_two_runs_for_one_folder_the_second_is_refused_before_it_reads_anything(
    short_run: Path, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    processes = [started(tmp_path, command_environment, "--out", "run", f"train.seed={seed}") for seed in range(2)]
    told = [process.communicate()[1] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 2], told
    refused = next(text for text, process in zip(told, processes, strict=True) if process.returncode == 2)
    assert "another process" in refused or "has finished" in refused  # as quick as the first one was
    winner = next(seed for seed, process in enumerate(processes) if process.returncode == 0)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["seed"] == winner


def test_a_run_that_waits_for_its_share_has_its_folder_already(
    command: Command, command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    share = ("--share", "claim=1395000")  # room for one
    with running(tmp_path, command_environment, *share, name="first"):
        waiting = started(tmp_path, command_environment, PLANNABLE, *share, "--wait", "--out", "runs/second")
        try:
            wait_until(lambda: is_running(tmp_path / "runs" / "second"), waiting)
            refused = command("fit", *SHORT, "--out", "runs/second", cwd=tmp_path)
            assert refused.returncode == 2
            assert "another process" in refused.stderr
        finally:
            waiting.kill()
            waiting.communicate()


@pytest.mark.parametrize("words", [("data.source=nowhere",), ("--budget", "1KB")])
def test_a_run_that_cannot_begin_leaves_nothing(words: tuple[str, ...], command: Command, tmp_path: Path) -> None:
    done = command("fit", *SHORT, *words, cwd=tmp_path)
    assert done.returncode not in (0, 1), done.stderr
    assert list(tmp_path.iterdir()) == []
