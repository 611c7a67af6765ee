"""A budget that moves while the model trains: at any step, to any size, with the same last bit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from edgetrain.errors import PlanInfeasibleError
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import CompiledJob, compile_job
from edgetrain.planner.plan import Budget
from edgetrain.recipes import load_recipe
from edgetrain.run.files.report import RunReport
from edgetrain.run.files.run_folder import REQUEST
from edgetrain.run.limits.exchange import Request
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.targets.profile import load_target
from edgetrain.units import Bytes, parse_bytes

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("compiler_here")]

OVERRIDES = ("train.epochs=2", "train.batch=8", "data.limit=96", "data.test_limit=32", "train.optimizer=adam")
STEPS = 20


def job_with(build_cache: BuildCache, budget: int | None = None) -> Job:
    return Job(
        recipe=load_recipe("digits", ("model.source=zoo:digits-cnn-bn", *OVERRIDES)),
        target=load_target("host"),
        budget=Budget(memory_bytes=None if budget is None else Bytes(budget)),
        cache=build_cache,
        threads=2,
    )


class Asker(Callback):
    """Asks for another budget after some of the steps, as `edgetrain budget` does from another process."""

    def __init__(self, folder: Path, requests: dict[int, Request]) -> None:
        self._folder = folder
        self._requests = requests

    def on_step_end(self, step: int, logs: Logs) -> None:
        if step in self._requests:
            staged = self._folder / "staged"
            staged.write_text(json.dumps(self._requests[step].to_json()))
            staged.replace(self._folder / REQUEST)


@pytest.fixture(scope="module")
def compiled(build_cache: BuildCache) -> CompiledJob:
    return compile_job(job_with(build_cache))


@pytest.fixture(scope="module")
def undisturbed(build_cache: BuildCache, tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    return fit(job_with(build_cache), tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def least_bytes(compiled: CompiledJob) -> int:
    with pytest.raises(PlanInfeasibleError) as caught:
        compiled.asking(budget=Budget(memory_bytes=Bytes(1000))).plan()
    return parse_bytes(caught.value.what.rpartition(" is ")[2])


@pytest.mark.parametrize("seed", range(4))
def test_budgets_that_move_at_random_change_no_bit_and_each_is_kept(
    seed: int, build_cache: BuildCache, compiled: CompiledJob, undisturbed: RunReport, least_bytes: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    most = undisturbed.planned_peak_bytes + compiled.beside.resident_bytes
    moves = {step: chance.randint(least_bytes, most + 1000) for step in sorted(chance.sample(range(1, STEPS), 5))}
    requests = {}
    for step, budget in moves.items():
        rung = compiled.asking(budget=Budget(memory_bytes=Bytes(budget))).plan().rung()
        requests[step] = Request(id=str(step), budget_bytes=budget, rung=rung, compiled_key=compiled.compiled.key)
    report = fit(job_with(build_cache), tmp_path, callbacks=[Asker(tmp_path, requests)])
    assert report.steps == undisturbed.steps == STEPS
    assert report.parameters_sha256 == undisturbed.parameters_sha256
    assert report.losses == undisturbed.losses
    assert report.test == undisturbed.test
    assert report.is_within_budget
    assert [(p.after_step, p.budget_bytes) for p in report.phases] == [(0, None), *moves.items()]
    for period in report.phases[1:]:
        assert period.budget_bytes is not None
        assert period.measured_peak_bytes <= period.planned_peak_bytes <= period.budget_bytes
    assert report.budget_bytes == list(moves.values())[-1]
    assert "plans " in report.to_text()
