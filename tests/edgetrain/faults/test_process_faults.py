"""The k-th process does not start, or ends at once, for every k: an error with exit code 6, and nothing left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgetrain.cli.failure import as_edgetrain_error
from edgetrain.compiler.client import run_compiler
from edgetrain.compiler.measure.runners import Runner, run_on_device
from edgetrain.errors import DeviceError, EdgetrainError, UsageError, error_from_json
from edgetrain.toolchain.c_compiler import Compiler, find_compiler, host_triple, run_command
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.remotes.git_clone import Clone
from edgetrain_tuner.measure.outcome import MeasuringLostError
from edgetrain_tuner.measure.worker import Worker
from tests.edgetrain.faults.walk import RecordProperty

KILLED = 0
FAULTS: Mapping[str, int] = {
    "no process left": errno.EAGAIN,
    "no memory": errno.ENOMEM,
    "no such file": errno.ENOENT,
    "killed at once": KILLED,
}
_LISTENS = "import sys; sys.stdin.read()"  # in the place of the compiler: it takes its job, and is content
_ANSWERS = """
import json, sys
for line in sys.stdin:
    if "job" in line:
        print(json.dumps({"failed": "not here"}), flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Start:
    """`act` starts processes; `done` says that it did what it is for."""

    name: str
    act: Callable[[Path], object]
    may_do_without: bool = False  # another way is found where one is barred
    code_of_missing: int = DeviceError.exit_code  # where there is no such program
    stand_in: str = ""  # a program in the place of the one that would be started


def compile_c(folder: Path) -> None:
    (folder / "a.c").write_text("int a(void) { return 1; }\n")
    compiler = Compiler(command=("cc",), archiver=("ar",), version="", triple=host_triple(), environment={})
    run_command(["cc", "-c", "a.c", "-o", "a.o"], compiler, folder, what="a")
    (folder / "a.o").unlink()


def find_host_compiler(folder: Path) -> None:
    assert find_compiler().version


def find_zig(folder: Path) -> None:
    assert "zig" in find_compiler("riscv64-linux-gnu").version


def compile_model(folder: Path) -> None:
    run_compiler({"job": "inspect"}, None)


def measure(folder: Path) -> None:
    with Worker((sys.executable, "-c", _ANSWERS), {}) as worker:
        found = worker.open(0, {})
        if found == "the measuring process ended":  # it is started again for the next kernel
            found = worker.open(0, {})
        assert found == "not here", found


def ask_device(folder: Path) -> None:
    program = folder / "trial"
    program.write_text("#!/bin/sh\necho\n")
    program.chmod(0o755)
    try:
        run_on_device(Runner(command=("sh", "-c", "cat >/dev/null; echo nothing"), run_s=5.0), program)
    except DeviceError as error:
        if "does not start" in error.what:
            raise
    finally:
        program.unlink()


def clone(folder: Path) -> None:
    place = folder / "clone.git"
    try:
        Clone(f"file://{folder}/nowhere", place, environment=dict(os.environ), timeout_s=5.0).fetch()
    except EdgetrainError:
        raise
    except Exception as error:
        if "no git repository" not in str(error):
            raise
    finally:
        place.with_name("clone.git.lock").unlink(missing_ok=True)


STARTS = (
    Start(name="C compiler", act=compile_c),
    Start(name="search for a C compiler", act=find_host_compiler, may_do_without=True),
    Start(name="zig", act=find_zig),
    Start(name="model compiler", act=compile_model, stand_in=_LISTENS),
    Start(name="measuring process", act=measure, may_do_without=True),
    Start(name="device", act=ask_device, may_do_without=True),
    Start(name="git", act=clone, code_of_missing=UsageError.exit_code),
)


def faulty_starts(start: Start, number: int, at: int, count: list[int]) -> type[subprocess.Popen[Any]]:
    class Faulty(subprocess.Popen[Any]):
        def __init__(self, command: Any, *values: Any, **options: Any) -> None:
            count[0] += 1
            is_due = count[0] == at
            if is_due and number:
                self.returncode = -1  # else its end would wait for what never was
                self._child_created = False
                raise OSError(number, os.strerror(number), command[0])
            command = [sys.executable, "-c", start.stand_in] if start.stand_in else command
            super().__init__(command, *values, **options)
            if is_due:
                self.kill()

    return Faulty


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.name)
def test_no_start_of_a_process_may_take_more_than_an_error(
    start: Start, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: RecordProperty
) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    points = 0
    for at in range(1, 20):
        count = [0]
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", faulty_starts(start, FAULTS[fault], at, count))
            error = _raised(start, tmp_path / "work")
        if count[0] < at:
            break
        points += 1
        assert error is not None or start.may_do_without or fault == "killed at once", f"start {at} was of no use"
        code = start.code_of_missing if fault == "no such file" else DeviceError.exit_code
        assert error is None or error.exit_code == code, f"start {at}: {error!r}"
        assert list((tmp_path / "temporary").iterdir()) == []
    assert points > 0
    assert error is None  # nothing failed: it works as before
    record_property("scenario", start.name)
    record_property("fault_points", points)
    record_property("recovered", points)


def _raised(start: Start, folder: Path) -> EdgetrainError | None:
    try:
        start.act(folder)
    except EdgetrainError as error:
        return error
    except MeasuringLostError as error:
        return error_from_json(error.told)
    except CacheError as error:
        return as_edgetrain_error(error)
    return None
