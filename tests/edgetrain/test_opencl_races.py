"""Kernels under Oclgrind, an OpenCL device that interprets them and watches every access.

PoCL hides missing barriers.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.compiler.device_code import DeviceCode
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.resolve import resolve_without_data
from edgetrain.pipeline.stages import PlannedJob, compile_job
from edgetrain.program.artifact import write_artifact
from edgetrain.program.emit_launches import emit_launching_driver, emit_source
from edgetrain.program.library import build_device_library
from edgetrain.recipes import load_recipe
from edgetrain.targets.profile import load_target
from tests.edgetrain.program.tiny_device import require_device

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("compiler_here")]

DRIVER = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def watched(command_environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a process that has Oclgrind as its one OpenCL driver."""
    require_device()
    if not DRIVER.exists():
        pytest.skip("needs Oclgrind: `apt-get install oclgrind`")
    drivers = tmp_path_factory.mktemp("drivers")
    (drivers / "oclgrind.icd").write_text(f"{DRIVER}\n")
    checks = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_CHECK_API": "1"}
    return {**command_environment, "OCL_ICD_VENDORS": str(drivers), "PYTHONPATH": os.pathsep.join(sys.path), **checks}


@pytest.fixture(scope="module")
def planned(build_cache: BuildCache) -> PlannedJob:
    recipe = load_recipe("digits", ("model.source=zoo:digits-cnn-bn", "train.batch=2"))
    job = Job(recipe=recipe, target=load_target("opencl"), cache=build_cache)
    require_device()
    return compile_job(resolve_without_data(job)).plan()


def step(program: Path, environment: Mapping[str, str]) -> tuple[float, str]:
    """The loss, and what Oclgrind says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.edgetrain.opencl_step", str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1]), done.stdout.rpartition("\n")[0] + done.stderr


def test_a_step_has_no_races_and_no_access_outside_its_tensors(
    planned: PlannedJob, watched: Mapping[str, str], command_environment: Mapping[str, str]
) -> None:
    program = planned.build().program.directory
    loss, said = step(program, watched)
    assert "kernel" not in said.lower(), said
    expected, _ = step(program, {**command_environment, "PYTHONPATH": watched["PYTHONPATH"]})
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_kernel_without_its_barriers_would_be_noticed(
    planned: PlannedJob, watched: Mapping[str, str], tmp_path: Path
) -> None:
    code = planned.compiled.device_code("opencl")
    assert BARRIER in code.source
    program = built_with(planned, dataclasses.replace(code, source=code.source.replace(BARRIER, "")), tmp_path)
    _, said = step(program, watched)
    assert "data race" in said


def built_with(planned: PlannedJob, code: DeviceCode, folder: Path) -> Path:
    """The planned program with other code for the device."""
    driver = emit_launching_driver(planned.compiled.graph, planned.plan, code)
    library = build_device_library(driver_c=driver, source_c=emit_source(code), out=folder / "library")
    device = planned.job.device
    return write_artifact(
        folder / "program",
        graph=planned.compiled.graph,
        plan=planned.plan,
        library=library,
        driver_c=driver,
        device_source=code.source,
        parameters=planned.compiled.initial(),
        target_name=device.name,
        codegen=device.codegen,
        gpu=device.gpu,
        versions={},
    ).directory
