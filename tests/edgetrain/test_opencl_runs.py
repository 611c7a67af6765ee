"""Training on an OpenCL device, for real: PoCL is one on the processor."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.compose
import pytest

from edgetrain.errors import DeviceError, UsageError
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.ir import FIRST_CORRECTION, LEARNING_RATE, LOSS, SECOND_CORRECTION, Role
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job, effective_budget, storage_of
from edgetrain.pipeline.profiling import with_measured_times
from edgetrain.pipeline.resolve import resolve_without_data
from edgetrain.pipeline.stages import BuiltJob, compile_job
from edgetrain.planner.plan import Budget, Compute, Plan
from edgetrain.recipes import load_recipe
from edgetrain.run.engines.engine import Array, scalar
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.synthetic import fill_synthetic
from edgetrain.run.files.report import RunReport
from edgetrain.targets.profile import load_target
from edgetrain.tuning.tune import Allowance, tune
from edgetrain.units import Bytes
from tests.edgetrain.program.tiny_device import require_device

SHORT = ("train.epochs=2", "train.schedule=constant", "train.batch=8", "data.limit=96", "data.test_limit=32")
STEPS = 10


def job_of(build_cache: BuildCache, *overrides: str, target: str = "opencl", recipe: str = "digits") -> Job:
    return Job(recipe=load_recipe(recipe, overrides), target=load_target(target), cache=build_cache)


def built(job: Job) -> BuiltJob:
    return compile_job(resolve_without_data(job)).plan().build()


def steps_of(built: BuiltJob, folder: Path) -> tuple[list[float], dict[str, Array]]:
    """The losses of a few steps on one made-up batch, and all that they changed."""
    graph = built.program.graph
    with LocalEngine(built.program, threads=1, page_directory=folder) as engine:
        fill_synthetic(engine, graph, loss=built.job.recipe.train.loss, seed=0)
        engine.tensor(LEARNING_RATE)[...] = 0.001
        losses = []
        for step in range(1, STEPS + 1):
            engine.tensor(FIRST_CORRECTION)[...] = 1 - 0.9**step
            engine.tensor(SECOND_CORRECTION)[...] = 1 - 0.999**step
            engine.call("step")
            losses.append(scalar(engine.tensor(LOSS)))
        kept = (*graph.by_role(Role.PARAMETER), *graph.by_role(Role.STATE))
        return losses, {tensor.name: engine.tensor(tensor.name).copy() for tensor in kept}


@pytest.fixture(scope="module")
def whole_run(build_cache: BuildCache, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunReport, Path]:
    require_device()
    folder = tmp_path_factory.mktemp("digits") / "run"
    return fit(job_of(build_cache), folder), folder


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
class TestOnADevice:
    @pytest.fixture(autouse=True)
    def _device(self) -> None:
        require_device()

    def test_digits_reaches_its_accuracy(self, whole_run: tuple[RunReport, Path]) -> None:
        report, _ = whole_run
        assert report.test["accuracy"] >= 0.97
        assert report.target == "opencl"
        assert "through OpenCL" in report.ran_on
        assert report.measured_peak_bytes == report.planned_peak_bytes
        assert report.process_peak_bytes is None

    def test_a_run_can_be_evaluated_and_exported(
        self,
        whole_run: tuple[RunReport, Path],
        command_environment: Mapping[str, str],
        tmp_path: Path,
    ) -> None:
        report, folder = whole_run
        done = edgetrain(command_environment, "eval", str(folder), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["accuracy"] == pytest.approx(report.test["accuracy"])
        done = edgetrain(command_environment, "export", str(folder), "--program", str(tmp_path / "program"))
        assert done.returncode == 0, done.stderr
        assert {"kernels.cl", "driver.c", "parameters.bin"} <= {path.name for path in (tmp_path / "program").iterdir()}

    @pytest.mark.parametrize(
        ("recipe", "model"),
        [("digits", "digits-cnn"), ("digits", "digits-cnn-bn"), ("watch-gestures", "watch-cnn")],
    )
    def test_ten_steps_agree_with_the_processor_s(
        self, recipe: str, model: str, build_cache: BuildCache, tmp_path: Path
    ) -> None:
        overrides = (f"model.source=zoo:{model}", "train.batch=8")
        there, here = (
            steps_of(built(job_of(build_cache, *overrides, target=target, recipe=recipe)), tmp_path)
            for target in ("opencl", "host")
        )
        np.testing.assert_allclose(there[0], here[0], rtol=1e-4)
        assert there[1].keys() == here[1].keys()
        for name, expected in here[1].items():
            largest = max(float(np.abs(expected).max()), 1e-6)
            assert float(np.abs(there[1][name] - expected).max()) <= 1e-4 * largest, name

    def test_names_that_c_cannot_spell_do_not_reach_the_device(self, build_cache: BuildCache, tmp_path: Path) -> None:
        from edgetrain.model.zoo import build_zoo_model

        path = tmp_path / "named.onnx"
        onnx.save(onnx.compose.add_prefix(build_zoo_model("digits-cnn"), 'm/ "é" ? int '), path)
        plain, named = (
            steps_of(built(job_of(build_cache, f"model.source={source}", "train.batch=8")), tmp_path)[0]
            for source in ("zoo:digits-cnn", path)
        )
        assert named == plain

    def test_a_tighter_plan_and_another_run_give_the_same_bits(self, build_cache: BuildCache, tmp_path: Path) -> None:
        job = job_of(build_cache, "train.batch=8", recipe="watch-gestures")
        compiled = compile_job(resolve_without_data(job))
        least = compiled.smallest_bytes()
        plain = compiled.plan()
        tight = compiled.asking(budget=Budget(memory_bytes=least)).plan()
        assert tight.plan.peak_bytes <= least < plain.plan.peak_bytes
        assert runs_of(tight.plan) > runs_of(plain.plan)
        losses, saved = steps_of(plain.build(), tmp_path)
        for again in (plain.build(), tight.build()):
            other_losses, other_saved = steps_of(again, tmp_path)
            assert other_losses == losses
            assert all(other_saved[name].tobytes() == values.tobytes() for name, values in saved.items())

    def test_a_run_that_goes_on_ends_with_the_bits_of_one_that_was_left_alone(
        self, build_cache: BuildCache, tmp_path: Path
    ) -> None:
        whole = fit(job_of(build_cache, *SHORT), tmp_path / "whole")
        fit(job_of(build_cache, *SHORT, "train.epochs=1"), tmp_path / "parts")
        resumed = fit(job_of(build_cache, *SHORT), tmp_path / "parts", resume=True)
        assert resumed.parameters_sha256 == whole.parameters_sha256

    def test_the_times_of_kernels_can_be_measured(self, build_cache: BuildCache) -> None:
        job = with_measured_times(compile_job(job_of(build_cache, *SHORT))).job
        assert job.op_seconds is not None
        assert all(seconds > 0 for seconds in job.op_seconds["step"].values())

    def test_nothing_is_paged(self, build_cache: BuildCache) -> None:
        assert storage_of(job_of(build_cache)) is None

    def test_other_programs_stay_as_they_are(self, build_cache: BuildCache) -> None:
        """The same model for the processor has the usual alignment, and nothing of a device."""
        compiled = compile_job(job_of(build_cache, *SHORT, target="host"))
        assert compiled.graph.alignment_bytes == 64
        program = compiled.plan().build().program
        assert program.manifest.gpu_api == ""
        assert not (program.directory / "kernels.cl").exists()
        assert b"OpenCL" not in program.library.read_bytes()


def runs_of(plan: Plan) -> int:
    return sum(isinstance(step, Compute) for step in plan.functions["step"].steps)


def edgetrain(environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgetrain", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_without_a_device_fit_ends_in_6_with_what_to_install(
    command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    nothing = {**command_environment, "OCL_ICD_VENDORS": str(tmp_path), "LD_LIBRARY_PATH": ""}
    done = edgetrain(nothing, "fit", "digits", "--target", "opencl", "--out", str(tmp_path / "run"))
    assert done.returncode == 6
    assert "error: there is no OpenCL device on this machine" in done.stderr
    assert "`apt-get install pocl-opencl-icd`" in done.stderr
    assert not (tmp_path / "run").exists()


def test_what_a_gpu_does_not_have_yet_is_refused(build_cache: BuildCache) -> None:
    job = job_of(build_cache)
    with pytest.raises(UsageError, match="the memory of opencl is not shared out"):
        dataclasses.replace(job, adapt=True)
    with pytest.raises(DeviceError, match="kernels for opencl cannot be tuned"):
        tune(job, Allowance(trials=1), today="2026-11-19")


def test_a_gpu_s_memory_is_the_budget_unless_less_is_asked_for(build_cache: BuildCache) -> None:
    job = job_of(build_cache)
    assert effective_budget(job).memory_bytes == job.device.memory_bytes
    asked = dataclasses.replace(job, budget=Budget(memory_bytes=Bytes(10**6)))
    assert effective_budget(asked).memory_bytes == 10**6
