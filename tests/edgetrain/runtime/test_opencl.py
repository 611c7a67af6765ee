"""What `opencl.c` does when a call of the driver fails, walked through with a stand-in for the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.edgetrain.program.tiny_device import build_tiny_for_gpu, device_plan
from tests.edgetrain.program.tiny_program import host_compiler

NO_DEVICE, DEVICE_MEMORY, DEVICE = -9, -10, -11


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("stand-in")
    source = Path(__file__).with_name("failing_opencl.c")
    command = [*host_compiler().command, "-fPIC", "-shared", "-Wall", "-Wextra", "-Wl,-soname,libOpenCL.so.1"]
    subprocess.run([*command, str(source), "-o", str(folder / "libOpenCL.so.1")], check=True)
    program = build_tiny_for_gpu(folder, device_plan())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.edgetrain.runtime.opencl_session"),
            *(str(program.library), str(program.manifest.arena_bytes)),
        ],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_driver_that_works_is_asked_for_all_that_a_step_needs(answers: Mapping[str, Any]) -> None:
    for name in ("good", "good_again"):
        assert (answers[name]["opened"], answers[name]["stepped"], answers[name]["live"]) == (0, 0, 0)
    assert answers["good"]["calls"] > 40


@pytest.mark.parametrize(("walk", "code"), [("failing", DEVICE), ("out_of_memory", DEVICE_MEMORY)])
def test_a_call_that_fails_ends_in_its_code_with_words_and_leaves_nothing(
    walk: str, code: int, answers: Mapping[str, Any]
) -> None:
    for number, answer in enumerate(answers[walk], 1):
        where = f"call {number}: {answer}"
        assert answer["live"] == 0, where
        status = answer["opened"] or answer["stepped"]
        # A platform that does not answer has no device; one that has no GPU is asked again for any device.
        if status == 0:
            assert number in (1, 2), where
        else:
            assert status in (code, NO_DEVICE), where
            assert "OpenCL" in answer["words"], where
    assert sum(answer["stepped"] not in (None, 0) for answer in answers[walk]) > 20


def test_a_device_that_wants_tensors_elsewhere_is_refused(answers: Mapping[str, Any]) -> None:
    assert answers["misaligned"]["opened"] == DEVICE
    assert (
        answers["misaligned"]["words"]
        == "the device wants tensors at multiples of 1024 bytes, the program has them at 512"
    )


def test_an_arena_that_the_device_cannot_give_is_refused(answers: Mapping[str, Any]) -> None:
    assert answers["too_large"]["opened"] == DEVICE_MEMORY
    assert "gives at most 1000 in one buffer" in answers["too_large"]["words"]
