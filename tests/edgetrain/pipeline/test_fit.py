"""The five stages together, on the bundled data."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgetrain.cli.failure import as_edgetrain_error
from edgetrain.errors import DataError, PlanInfeasibleError, UsageError
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job, effective_budget
from edgetrain.pipeline.stages import compile_job
from edgetrain.planner.plan import Budget
from edgetrain.recipes import load_recipe
from edgetrain.run.files.report import RunReport
from edgetrain.targets.profile import load_target, to_toml
from edgetrain.units import Bytes

OVERRIDES = ("train.epochs=1", "train.batch=8", "data.limit=96", "data.test_limit=32")
SMALL = ("model.source=zoo:digits-cnn-bn", *OVERRIDES)


def _job(build_cache: BuildCache, target: str = "host", budget: int | None = None, **changes: object) -> Job:
    job = Job(
        recipe=load_recipe("digits", SMALL),
        target=load_target(target),
        budget=Budget(memory_bytes=None if budget is None else Bytes(budget)),
        cache=build_cache,
        threads=2,
    )
    return dataclasses.replace(job, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def unplanned(build_cache: BuildCache, tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    return fit(_job(build_cache), tmp_path_factory.mktemp("unplanned"))


@pytest.mark.compile
def test_a_run_leaves_everything_it_promises(build_cache: BuildCache, tmp_path: Path) -> None:
    report = fit(_job(build_cache), tmp_path / "run", dump=tmp_path / "dump")
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"report.json", "log.jsonl", "checkpoint.bin", "model.onnx", "recipe.json", "program", "plot.svg"} <= names
    written = json.loads((tmp_path / "run" / "report.json").read_text())
    assert written["planned_peak_bytes"] == report.planned_peak_bytes
    assert written["losses"] == list(report.losses)
    assert 0 <= written["test_accuracy"] <= 1
    dumped = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert dumped == ["1-graph.json", "2-costs.json", "3-plan.json", "4-program", "5-report.json"]


@pytest.mark.compile
def test_measured_memory_is_within_planned_and_planned_within_budget(
    build_cache: BuildCache, unplanned: RunReport, tmp_path: Path
) -> None:
    beside_bytes = compile_job(_job(build_cache)).beside.resident_bytes
    budget = unplanned.planned_peak_bytes * 9 // 10 + beside_bytes
    report = fit(_job(build_cache, budget=budget), tmp_path)
    assert report.measured_peak_bytes <= report.planned_peak_bytes
    assert report.measured_peak_bytes > 0.9 * report.planned_peak_bytes
    assert report.process_peak_bytes is None or report.process_peak_bytes <= budget


@pytest.mark.compile
def test_a_plan_changes_no_bit_of_the_result(build_cache: BuildCache, unplanned: RunReport, tmp_path: Path) -> None:
    with pytest.raises(PlanInfeasibleError) as caught:
        fit(_job(build_cache, budget=1000), tmp_path / "none")
    smallest = caught.value.fix.split("--budget ")[1].split("`")[0]
    assert not (tmp_path / "none").exists()
    from edgetrain.units import parse_bytes

    report = fit(_job(build_cache, budget=parse_bytes(smallest)), tmp_path / "tight")
    assert report.planned_peak_bytes < unplanned.planned_peak_bytes
    assert report.parameters_sha256 == unplanned.parameters_sha256
    assert report.losses == unplanned.losses


@pytest.mark.compile
def test_another_target_runs_its_own_plan_here_and_says_so(build_cache: BuildCache, tmp_path: Path) -> None:
    said: list[str] = []
    report = fit(_job(build_cache, target="jetson", budget=2 * 10**9, notify=said.append, inform=said.append), tmp_path)
    assert report.target == "jetson"
    assert report.ran_on == "this host"
    assert any(line.startswith("the plan for jetson runs on this host") for line in said)
    assert any(line.startswith("compiled for jetson") for line in said)


@pytest.mark.compile
def test_a_profile_of_this_machine_runs_under_a_name_of_its_own(
    build_cache: BuildCache, unplanned: RunReport, tmp_path: Path
) -> None:
    """As `edgetrain targets calibrate NAME` keeps them."""
    profile = tmp_path / "lab.toml"
    profile.write_text(to_toml(load_target("host")), encoding="utf-8")
    report = fit(_job(build_cache, target=str(profile)), tmp_path / "run")
    assert report.target == "lab"
    assert report.parameters_sha256 == unplanned.parameters_sha256


@pytest.mark.compile
@pytest.mark.parametrize("target", ["raspberry-pi-4", "cortex-m7"])
def test_every_kind_of_target_gets_a_program_of_its_own(build_cache: BuildCache, target: str) -> None:
    said: list[str] = []
    job = _job(build_cache, target=target, notify=said.append, inform=said.append)
    compile_job(job).plan().build()
    assert any(line.startswith(f"compiled for {target}") for line in said), said


@pytest.mark.compile
def test_the_process_that_trains_never_imports_the_compiler(cache_home: Path, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from edgetrain.pipeline.job import Job\n"
        "from edgetrain.pipeline.fit import fit\n"
        "from edgetrain.recipes import load_recipe\n"
        "from edgetrain.targets.profile import load_target\n"
        f"job = Job(recipe=load_recipe('digits', {list(SMALL)!r}), target=load_target('host'), threads=2)\n"
        f"fit(job, pathlib.Path({str(tmp_path)!r}))\n"
        "assert 'tvm' not in sys.modules and 'tvm_ffi' not in sys.modules, 'TVM rode along'\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(cache_home), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [-1, 0, 65, 99999999999])
def test_threads_that_no_program_has_are_refused_before_anything_is_done(threads: int, build_cache: BuildCache) -> None:
    with pytest.raises(UsageError, match=f"on {threads} threads: it has 1 to 64"):
        _job(build_cache, threads=threads)


@pytest.mark.compile
def test_a_sample_that_is_refused_is_not_its_own_cause(build_cache: BuildCache, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.full((64, 8, 8), np.nan, np.float32), y=np.arange(64) % 10)
    recipe = load_recipe("digits", (*SMALL, f"data.source={tmp_path / 'data.npz'}"))
    with pytest.raises(DataError, match="NaN") as caught:
        fit(_job(build_cache, recipe=recipe), tmp_path / "run")
    assert as_edgetrain_error(caught.value) is caught.value
    assert caught.value.__cause__ is not caught.value


@pytest.mark.compile
def test_labels_outside_the_model_are_refused_before_training(build_cache: BuildCache, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.integers(0, 255, (64, 8, 8), dtype=np.uint8), y=np.full(64, 12))
    recipe = load_recipe("digits", (*SMALL, f"data.source={tmp_path / 'data.npz'}", "data.limit=none"))
    with pytest.raises(DataError, match="label 12"):
        fit(_job(build_cache, recipe=recipe), tmp_path / "run")


def test_a_budget_never_exceeds_what_the_device_has(build_cache: BuildCache) -> None:
    said: list[str] = []
    job = _job(build_cache, target="cortex-m4", budget=10**12, notify=said.append, inform=said.append)
    assert effective_budget(job).memory_bytes == job.device.memory_bytes
    assert "cortex-m4 has" in said[0]


def test_a_device_without_a_budget_is_limited_by_its_memory(build_cache: BuildCache) -> None:
    job = _job(build_cache, target="cortex-m4")
    assert effective_budget(job).memory_bytes == job.device.memory_bytes
    assert effective_budget(_job(build_cache)).memory_bytes is None
