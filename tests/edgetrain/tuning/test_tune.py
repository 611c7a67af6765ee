"""Tuning a model leaves schedules that this machine's runs use, other models borrow, and a resumed run ignores."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from edgetrain.compiler.schedules import ScheduleStores
from edgetrain.compiler.search.request import deep_cost_model
from edgetrain.compiler.search.trials import Trials
from edgetrain.compiler.tuner_view import schedule_target
from edgetrain.errors import DeviceError
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.recipes import load_recipe
from edgetrain.targets.host import machine_id
from edgetrain.targets.profile import load_target
from edgetrain.tuning.report import KernelRow, TuningReport
from edgetrain.tuning.tune import Allowance, tune
from edgetrain_tuner.cache.entry import Check, Entry, Measurement, Versions
from edgetrain_tuner.cache.schedules import RuleSchedule
from edgetrain_tuner.rules.metaschedule.rule import NAME
from edgetrain_tuner.schedule import RULES_VERSION
from tests.edgetrain.cli.test_entry import assert_golden
from tests.edgetrain.compiler.search.scripted_measuring import asked, measuring

SMALL = ("train.epochs=1", "train.schedule=constant", "data.limit=64", "data.test_limit=32")


def _job(build_cache: BuildCache, stores: Path, *overrides: str) -> Job:
    """Where schedules are tried, they all win: what is faster in earnest is another machine's business."""
    return Job(
        recipe=load_recipe("digits", (*SMALL, *overrides)),
        target=load_target("host"),
        cache=build_cache,
        stores=ScheduleStores(folder=stores),
        trials=Trials(seconds=20.0, measuring=measuring("faster", stores / "asked")),
        threads=1,
    )


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_tuning_measures_stores_and_reports(build_cache: BuildCache, tmp_path: Path) -> None:
    job = _job(build_cache, tmp_path, "train.batch=8")
    stages: list[tuple[str, int, int]] = []
    job = dataclasses.replace(job, progress=lambda *stage: stages.append(stage))
    report = tune(job, Allowance(trials=6), today="2026-01-31")
    assert 0 < report.trials <= 6
    assert [stage for stage in stages if stage[0] == "tuning kernels"][-1][1:] == (report.trials, 6)
    with ScheduleStores(folder=tmp_path).opened() as levels:
        stored = list(levels.user)
    assert len(stored) == report.entries == report.trials
    assert {entry.target for entry in stored} == {schedule_target(job.device.codegen)}
    assert all(entry.check.largest_error <= 1e-4 for entry in stored if entry.outcome != "failed")
    assert {row.symbol for row in report.kernels} == {op.kernel for op in compile_job(job).graph.functions["step"]}
    winners = {entry.id for entry in stored if entry.outcome == "faster"}
    used = {r.choice.entry for r in compile_job(job).compiled.schedules.values() if r.choice.source == "cache"}
    assert used == winners
    assert "after" in report.to_text()


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_a_second_search_goes_on_where_the_first_ended(build_cache: BuildCache, tmp_path: Path) -> None:
    job = _job(build_cache, tmp_path, "train.batch=8")
    first = tune(job, Allowance(trials=4), today="2026-01-31")
    tune(job, Allowance(trials=4), today="2026-02-01")
    with ScheduleStores(folder=tmp_path).opened() as levels:
        stored = list(levels.user)
    again = [entry for entry in stored if len(entry.measurements) > 1]
    assert all(entry.outcome == "faster" for entry in again), "what was no better is not measured twice"
    assert len(stored) >= first.entries


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_a_deep_search_tries_both_kinds_of_schedules(build_cache: BuildCache, tmp_path: Path) -> None:
    job = _job(build_cache, tmp_path, "train.batch=8")
    report = tune(job, Allowance(trials=16, deep=True), today="2026-01-31")
    assert report.deep == deep_cost_model()
    with ScheduleStores(folder=tmp_path).opened() as levels:
        stored = list(levels.user)
    found = {entry.schedule.rule for entry in stored}
    assert NAME in found
    assert found - {NAME}
    measured = [entry for entry in stored if entry.schedule.rule == NAME and entry.measurements]
    assert measured
    assert all(entry.check.largest_error <= 1e-4 for entry in measured)


def _entries_of(job: Job) -> list[Entry]:
    """What a search could have found: another tile for every product, twice as fast."""
    target = schedule_target(job.device.codegen)
    assert target is not None
    entries = []
    for record in compile_job(dataclasses.replace(job, schedules={})).compiled.schedules.values():
        schedule = record.choice.schedule
        if schedule is None or schedule.rule != "packed-product" or schedule.parameters["rows"] == (1,):
            continue
        rows = (schedule.parameters["rows"][0] - 1,)
        entries.append(
            Entry(
                workload=record.workload,
                target=target,
                schedule=RuleSchedule(rule=schedule.rule, parameters={**schedule.parameters, "rows": rows}),
                versions=Versions(tvm="0.27.0", rules=RULES_VERSION),
                check=Check(largest_error=1e-6, against="unscheduled"),
                outcome="faster",
                measurements=(
                    Measurement(seconds=1e-3, default_seconds=2e-3, n=9, machine="0" * 16, when="2026-01-31"),
                ),
            )
        )
    assert entries
    return entries


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_another_model_starts_with_transferred_schedules_and_says_so(build_cache: BuildCache, tmp_path: Path) -> None:
    with ScheduleStores(folder=tmp_path / "stores").opened() as levels:
        levels.user.put_all(_entries_of(_job(build_cache, tmp_path / "none", "train.batch=8")))
    said: list[str] = []
    job = _job(build_cache, tmp_path / "stores", "train.batch=16")
    fit(dataclasses.replace(job, inform=said.append), tmp_path / "run")
    (line,) = [line for line in said if line.startswith("schedules: ")]
    kernels = json.loads((tmp_path / "run" / "report.json").read_text())["kernels"]
    assert kernels["transferred"] > 0
    assert f"{kernels['transferred']} transferred; {kernels['tried']} tried" in line
    assert kernels["kernels"] == kernels["from_rules"] + kernels["transferred"] + sum(kernels["from_cache"].values())


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_a_resumed_run_keeps_the_schedules_it_began_with(build_cache: BuildCache, tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    whole = fit(_job(build_cache, stores, "train.batch=8", "train.epochs=2"), tmp_path / "whole")
    fit(_job(build_cache, stores, "train.batch=8", "train.epochs=1"), tmp_path / "run")
    with ScheduleStores(folder=stores).opened() as levels:
        levels.user.put_all(_entries_of(_job(build_cache, stores, "train.batch=8")))
    resumed = fit(_job(build_cache, stores, "train.batch=8", "train.epochs=2"), tmp_path / "run", resume=True)
    assert asked(stores / "asked") == [], "a run that goes on tries nothing"
    assert resumed.parameters_sha256 == whole.parameters_sha256
    assert resumed.kernels["from_rules"] == resumed.kernels["kernels"]
    fresh = fit(_job(build_cache, stores, "train.batch=8", "train.epochs=1"), tmp_path / "fresh")
    assert fresh.kernels["from_cache"] == {"user": len(_entries_of(_job(build_cache, stores, "train.batch=8")))}
    before = asked(stores / "asked")
    assert before.count("start") == 1
    again = fit(_job(build_cache, stores, "train.batch=8", "train.epochs=1"), tmp_path / "again")
    assert (again.parameters_sha256, again.kernels["tried"]) == (fresh.parameters_sha256, 0)
    assert asked(stores / "asked") == before, "what was tried once is known"


def slow_entry(job: Job, *, claimed: float = 5.0) -> Entry:
    """A stranger's word that the heaviest product is fast one element at a time, which it is nowhere."""
    target = schedule_target(job.device.codegen)
    assert target is not None
    records = compile_job(dataclasses.replace(job, schedules={})).compiled.schedules.values()
    products = [r for r in records if r.choice.schedule is not None and r.choice.schedule.rule == "packed-product"]
    heaviest = max(products, key=lambda record: record.workload.operations)
    assert heaviest.choice.schedule is not None
    parameters = dict(heaviest.choice.schedule.parameters)
    ones = {name: (1,) * len(parameters[name]) for name in ("rows", "depth", "block")}
    measured = Measurement(seconds=1e-3, default_seconds=claimed * 1e-3, n=9, machine="0" * 16, when="2026-01-31")
    return Entry(
        workload=heaviest.workload,
        target=target,
        schedule=RuleSchedule(rule="packed-product", parameters={**parameters, **ones}),
        versions=Versions(tvm="0.27.0", rules=RULES_VERSION),
        check=Check(largest_error=1e-6, against="unscheduled"),
        outcome="faster",
        measurements=(measured,),
    )


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_a_boast_is_outraced_in_earnest_and_the_next_fit_knows(build_cache: BuildCache, tmp_path: Path) -> None:
    """With the process that really measures."""
    stores = tmp_path / "stores"
    job = dataclasses.replace(_job(build_cache, stores, "train.batch=8"), trials=Trials(seconds=20.0))
    boast = slow_entry(job)
    with ScheduleStores(folder=stores).opened() as levels:
        levels.user.put(boast)
    said: list[str] = []
    stages: list[str] = []
    job = dataclasses.replace(job, inform=said.append, progress=lambda stage, *_: stages.append(stage))
    report = fit(job, tmp_path / "run")
    (line,) = [line for line in said if line.startswith("schedules: ")]
    kernels = report.kernels["kernels"]
    assert line == f"schedules: {kernels} from rules; 1 tried, 1 of them no faster here"
    assert "trying schedules" in stages
    with ScheduleStores(folder=stores).opened() as levels:
        (own,) = [m for entry in levels.user for m in entry.measurements if m.machine == machine_id()]
    assert own.speedup < 1.03
    again = fit(dataclasses.replace(job, trials=Trials(measuring=("/nowhere",))), tmp_path / "again")
    assert again.parameters_sha256 == report.parameters_sha256
    assert again.kernels["tried"] == 0


def test_what_is_not_this_machine_cannot_be_tuned_here(build_cache: BuildCache, tmp_path: Path) -> None:
    job = dataclasses.replace(_job(build_cache, tmp_path), target=load_target("cortex-m7"))
    with pytest.raises(DeviceError, match="cannot be measured here") as caught:
        tune(job, Allowance(trials=1), today="2026-01-31")
    assert caught.value.exit_code == 6
    assert "--runner 'ssh " in caught.value.fix


def _row(**changes: object) -> KernelRow:
    row = KernelRow(
        name="conv2d_relu of stem.weight",
        symbol="k0",
        calls=1,
        source="tuned",
        schedule="packed-product rows 4",
        seconds=2e-3,
        tuned_seconds=1e-3,
        flops=100_000_000,
        moved_bytes=1_000_000,
        roofline_seconds=5e-4,
        trials=24,
    )
    return dataclasses.replace(row, **changes)  # type: ignore[arg-type]


def test_the_table_says_for_each_kernel_what_tuning_brought() -> None:
    rows = (
        _row(),
        _row(name="sum", source="rule", calls=3, tuned_seconds=2e-3, flops=1_000_000, moved_bytes=4_000_000),
        _row(name="softmax", source="rule", tuned_seconds=2e-3, flops=10, trials=0),
        _row(name="a name that is far too long for a column of this table", source="cache (team)"),
    )
    report = TuningReport(
        model="digits",
        target="host",
        rates_basis="assumed",
        trials=48,
        step_seconds=8e-3,
        tuned_step_seconds=6e-3,
        entries=48,
        kernels=rows,
    )
    assert_golden("tuned.txt", report.to_text())
    assert report.to_json()["speedup"] == 8 / 6


@pytest.mark.parametrize(("cost_model", "told"), [("xgboost", "xgboost learned"), ("random", "edgetrain[deep]")])
def test_the_last_line_says_how_a_deep_search_ranked_its_candidates(cost_model: str, told: str) -> None:
    report = TuningReport(
        model="digits",
        target="host",
        rates_basis="assumed",
        trials=0,
        step_seconds=1.0,
        tuned_step_seconds=1.0,
        entries=0,
        deep=cost_model,
        kernels=(_row(),),
    )
    last = report.to_text().splitlines()[-1]
    assert last.startswith("MetaSchedule's candidates were ")
    assert told in last
    assert "MetaSchedule" not in dataclasses.replace(report, deep="").to_text()


def test_kernels_beyond_the_table_are_summed_up() -> None:
    report = TuningReport(
        model="digits",
        target="host",
        rates_basis="assumed",
        trials=0,
        step_seconds=1.0,
        tuned_step_seconds=1.0,
        entries=0,
        kernels=(_row(),) * 22,
    )
    assert "and 2 more, 2.0 ms together; --json has all of them" in report.to_text()
