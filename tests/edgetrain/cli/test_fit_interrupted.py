"""Runs that are stopped, politely and not, and go on to the same bits as one that never was."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.run.files.checkpoint import NEWEST
from tests.edgetrain.cli.conftest import COMMAND, Command
from tests.edgetrain.cli.live_runs import surviving_header

pytestmark = pytest.mark.compile

# Long enough to be met in the middle: 700 steps, saved every third.
LONG = ("digits", "data.limit=256", "train.epochs=100", "train.checkpoint_every=3")
_PATIENCE_S = 120


@pytest.fixture(scope="module")
def undisturbed(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = command("fit", *LONG, "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "digits"


def start(words: tuple[str, ...], cwd: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "fit", *words], cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.002)


def assert_same_run(one: Path, other: Path) -> None:
    shas = [json.loads((folder / "report.json").read_text())["parameters_sha256"] for folder in (one, other)]
    assert shas[0] == shas[1]
    assert (one / "model.onnx").read_bytes() == (other / "model.onnx").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_stopped_run_resumes_to_the_same_bits(
    number: signal.Signals,
    command: Command,
    command_environment: Mapping[str, str],
    undisturbed: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "runs" / "digits"
    process = start(LONG, tmp_path, command_environment)
    wait_for(folder / NEWEST, process)
    process.send_signal(number)
    told = process.communicate()[1]
    assert process.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    assert not (folder / "report.json").exists(), "it had finished before the signal"
    assert 0 < surviving_header(folder).progress.step < 700
    if number is not signal.SIGKILL:
        assert f"error: stopped by {number.name} after step" in told
        assert "hint: go on with `edgetrain fit digits --resume --out runs/digits`" in told
    resumed = command("fit", "digits", "--resume", "-q", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert_same_run(folder, undisturbed)


def test_an_interrupt_while_compiling_changes_nothing(command_environment: Mapping[str, str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = start(LONG, tmp_path, {**command_environment, "XDG_CACHE_HOME": str(cache)})
    assert process.stderr is not None
    for line in process.stderr:
        if "importing the model" in line:
            break
    compiler = child_of(process.pid)
    process.send_signal(signal.SIGINT)
    told = process.communicate()[1]
    assert process.returncode == 130
    assert "error: interrupted; nothing was changed\n" in told
    assert not (tmp_path / "runs").exists()
    assert not [path for path in cache.rglob("*") if path.is_file()]
    assert not is_running(compiler), "the compiler was left behind"


def child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if not children.exists():
        pytest.skip("needs /proc to name a process's children (Linux with CONFIG_PROC_CHILDREN)")
    return int(children.read_text().split()[0])


def is_running(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
