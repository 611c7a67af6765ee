"""A training step whose kernels have deep schedules trains to the same losses, in the memory that was planned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgetrain.compiler.request import ZOO
from edgetrain.compiler.schedules import CACHE, ScheduleChoice
from edgetrain.compiler.tuner_view import machine_of
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.build import build_step
from edgetrain.graph.extract import Extracted, extract
from edgetrain.model.importer import import_model
from edgetrain.model.output import trained_output
from edgetrain.model.zoo import build_zoo_model
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job, compile_request
from edgetrain.pipeline.stages import compile_job
from edgetrain.recipes import load_recipe
from edgetrain.targets.profile import load_target
from edgetrain_tuner.rules.metaschedule.rule import NAME
from edgetrain_tuner.schedule import ScheduleRefusedError
from tests.edgetrain_tuner.rules.metaschedule.drawn_schedules import drawn

pytestmark = pytest.mark.compile


def _job(build_cache: BuildCache) -> Job:
    small = ("train.epochs=1", "train.schedule=constant", "data.limit=64", "data.test_limit=32", "train.batch=8")
    return Job(
        recipe=load_recipe("digits", small),
        target=load_target("host"),
        cache=build_cache,
        stores=None,
        schedules={},
        threads=2,
    )


def _extracted(job: Job) -> Extracted:
    """The kernels that the compiler's process schedules."""
    request = compile_request(job, with_kernels=False)
    name = request.model.source.removeprefix(ZOO)
    proto = build_zoo_model(name)
    output = trained_output(proto, request.model.output)
    model = import_model(proto, name=name, batch=request.options.batch, shapes={}, output=output)
    return extract(build_step(model, request.options), model.name)


def _deep_choices(job: Job, seed: int) -> dict[str, ScheduleChoice]:
    request = compile_request(job, with_kernels=False)
    machine = machine_of(request.codegen)
    choices = {}
    for kernel in _extracted(job).kernels:
        try:
            schedule = drawn(kernel.function, f"{kernel.symbol} {seed}", machine)
        except ScheduleRefusedError:
            continue
        choices[kernel.symbol] = ScheduleChoice(schedule=schedule, source=CACHE, level="user")
    return choices


@pytest.mark.parametrize("seed", [1])
def test_a_step_with_deep_schedules_trains_the_same(build_cache: BuildCache, tmp_path: Path, seed: int) -> None:
    job = _job(build_cache)
    deep_job = dataclasses.replace(job, schedules=_deep_choices(job, seed))
    applied = [record.choice.schedule for record in compile_job(deep_job).compiled.schedules.values()]
    deep_kernels = [schedule for schedule in applied if schedule is not None and schedule.rule == NAME]
    assert len(deep_kernels) > len(applied) / 2
    plain, deep = fit(job, tmp_path / "plain"), fit(deep_job, tmp_path / "deep")
    np.testing.assert_allclose(deep.losses, plain.losses, rtol=1e-4)
    assert deep.measured_peak_bytes <= deep.planned_peak_bytes
