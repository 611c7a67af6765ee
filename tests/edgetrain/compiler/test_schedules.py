"""Schedules that somebody found are used where they fit, recorded, and part of what a program is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.compiler import compile as compile_module
from edgetrain.compiler.compile import compile_graph
from edgetrain.compiler.compiled import Compiled
from edgetrain.compiler.schedules import (
    KernelRecord,
    ScheduleChoice,
    ScheduleStores,
    choices_of,
    read_records,
    summary,
    summary_text,
    write_records,
)
from edgetrain.compiler.search.trials import NOTHING_TRIED, Origin, TrialReport, Trials, TrialTerms, TriedSchedule
from edgetrain.errors import DataError
from edgetrain.files.build_cache import BuildCache
from edgetrain.targets.device import Rates
from edgetrain_tuner.cache.entry import Check, Entry, Measurement, Target, Versions
from edgetrain_tuner.cache.jsonl import write_lines
from edgetrain_tuner.cache.schedules import RuleSchedule
from edgetrain_tuner.measure.outcome import Outcome
from edgetrain_tuner.schedule import RULES_VERSION, Schedule
from tests.edgetrain.compiler.test_compile import _request
from tests.edgetrain.processors import processor

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("compiler_here")]

CODEGEN = processor("x86_64-linux-gnu", "test")  # of schedules; kernels are compiled for this machine
TARGET = Target(isa="x86-64", cpu="test", vector_bits=128, vector_registers=16, cores=1, cache_bytes=0)


@pytest.fixture(scope="module")
def plain(build_cache: BuildCache) -> Compiled:
    return compile_graph(_request(), cache=build_cache)


def _found(record: KernelRecord, schedule: Schedule, *, dims_factor: int = 1) -> Entry:
    """An entry that says: this schedule takes half the time."""
    workload = record.workload
    dims = (workload.dims[0] * dims_factor, *workload.dims[1:])
    return Entry(
        workload=dataclasses.replace(workload, dims=dims, operations=workload.operations * dims_factor),
        target=TARGET,
        schedule=RuleSchedule(rule=schedule.rule, parameters=schedule.parameters),
        versions=Versions(tvm="0.27.0", rules=RULES_VERSION),
        check=Check(largest_error=1e-6, against="unscheduled"),
        outcome="faster",
        measurements=(Measurement(seconds=1e-3, default_seconds=2e-3, n=5, machine="0" * 16, when="2026-01-31"),),
    )


def _product_of(records: Mapping[str, KernelRecord]) -> tuple[str, KernelRecord]:
    """A kernel that the rule for products wrote, and whose tile has rows to spare."""
    return next(
        (symbol, record)
        for symbol, record in records.items()
        if record.choice.schedule is not None
        and record.choice.schedule.rule == "packed-product"
        and record.choice.schedule.parameters["rows"][0] > 2
    )


def _with_rows(schedule: Schedule | None, rows: int) -> Schedule:
    assert schedule is not None
    return Schedule(schedule.rule, {**schedule.parameters, "rows": (rows,)})


def test_without_a_cache_every_schedule_is_a_rule_s(plain: Compiled) -> None:
    assert {record.choice.source for record in plain.schedules.values()} == {"rule"}
    assert all(record.choice.schedule is not None for record in plain.schedules.values())
    assert set(plain.schedules) == {op.kernel for ops in plain.graph.functions.values() for op in ops}


def test_a_known_schedule_is_used_and_said(plain: Compiled, build_cache: BuildCache, tmp_path: Path) -> None:
    symbol, record = _product_of(plain.schedules)
    wanted = _with_rows(record.choice.schedule, 2)
    stores = ScheduleStores(folder=tmp_path)
    with stores.opened() as levels:
        levels.user.put(_found(record, wanted))
    request = dataclasses.replace(_request(), codegen=CODEGEN)
    tuned = compile_graph(request, cache=build_cache, stores=stores)
    assert tuned.schedules[symbol].choice.schedule == wanted
    assert (tuned.schedules[symbol].choice.source, tuned.schedules[symbol].choice.level) == ("cache", "user")
    assert tuned.identity("host") != plain.identity("host")
    again = compile_graph(dataclasses.replace(request, schedules=choices_of(tuned.schedules)), cache=build_cache)
    assert again.directory == tuned.directory


def test_the_choice_is_the_same_before_and_after_the_kernels_are_known(
    plain: Compiled, build_cache: BuildCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler chooses the first time, whoever asks it afterwards: both come to the same entry."""
    _, record = _product_of(plain.schedules)
    stores = ScheduleStores(folder=tmp_path)
    with stores.opened() as levels:
        levels.user.put(_found(record, _with_rows(record.choice.schedule, 2), dims_factor=2))
    request = dataclasses.replace(_request(), codegen=dataclasses.replace(CODEGEN, cpu="near"))
    first = compile_graph(request, cache=build_cache, stores=stores)
    assert "transferred" in {record.choice.source for record in first.schedules.values()}
    monkeypatch.setattr(compile_module, "run_compiler", lambda *_: pytest.fail("the compiler was started"))
    assert compile_graph(request, cache=build_cache, stores=stores).directory == first.directory


def test_a_schedule_that_fits_nothing_is_left_to_the_rules(plain: Compiled, build_cache: BuildCache) -> None:
    symbol, record = _product_of(plain.schedules)
    choices = choices_of(plain.schedules)
    choices[symbol] = ScheduleChoice(schedule=Schedule("no-such-rule", {}), source="cache", level="team")
    compiled = compile_graph(dataclasses.replace(_request(), schedules=choices), cache=build_cache)
    assert compiled.schedules[symbol].choice == record.choice
    assert compiled.identity("host") == plain.identity("host")


def test_a_store_that_cannot_be_read_has_nothing(plain: Compiled, build_cache: BuildCache, tmp_path: Path) -> None:
    (tmp_path / "user.sqlite").mkdir()
    request = dataclasses.replace(_request(), codegen=CODEGEN)
    compiled = compile_graph(request, cache=build_cache, stores=ScheduleStores(folder=tmp_path))
    assert {record.choice.source for record in compiled.schedules.values()} == {"rule"}


def test_records_survive_their_file(plain: Compiled, tmp_path: Path) -> None:
    path = tmp_path / "schedules.json"
    write_records(path, plain.schedules)
    assert read_records(path) == plain.schedules
    path.write_text('{"format": "something else"}')
    with pytest.raises(DataError, match="cannot be used"):
        read_records(path)


def test_what_ships_is_used_at_once_for_the_machine_it_fits_and_said(
    plain: Compiled, build_cache: BuildCache, tmp_path: Path
) -> None:
    symbol, record = _product_of(plain.schedules)
    wanted = _with_rows(record.choice.schedule, 2)
    (tmp_path / "seed").mkdir()
    write_lines(tmp_path / "seed" / "digits.jsonl", [_found(record, wanted)])
    stores = ScheduleStores(folder=tmp_path / "stores", seed_folder=tmp_path / "seed")
    request = dataclasses.replace(_request(), codegen=dataclasses.replace(CODEGEN, cache_bytes=1))
    rates = Rates(flops_per_s=1e9, memory_bytes_per_s=1e9, launch_s=0, joules_per_flop=0, joules_per_byte=0)
    origin = Origin(machine="7" * 16, today="2026-01-31", model="digits", tool="test")
    terms = TrialTerms(origin=origin, threads=1, trials=Trials(measuring=("/nowhere",)), rates=rates)
    seeded = compile_graph(request, cache=build_cache, stores=stores, terms=terms)
    assert seeded.schedules[symbol].choice.schedule == wanted
    assert seeded.trials == NOTHING_TRIED
    choices = [one.choice for one in seeded.schedules.values()]
    assert summary_text(choices) == f"schedules: {len(choices) - 1} from rules, 1 from the cache (seed)"
    off = compile_graph(request, cache=build_cache, stores=dataclasses.replace(stores, seed_folder=None), terms=terms)
    assert off.identity("host") == plain.identity("host")
    assert ScheduleStores.from_json(stores.to_json()) == stores


def test_sources_are_counted_and_said() -> None:
    schedule = Schedule("generic", {})
    choices = [
        *[ScheduleChoice() for _ in range(3)],
        *[ScheduleChoice(schedule=schedule, source="cache", level="team") for _ in range(2)],
        ScheduleChoice(schedule=schedule, source="transferred", level="user"),
    ]
    assert summary_text(choices) == "schedules: 3 from rules, 2 from the cache (team), 1 transferred"
    counts = {"kernels": 6, "from_rules": 3, "from_cache": {"team": 2}, "transferred": 1}
    assert summary(choices) == {
        **counts,
        "tried": 0,
        "no_faster": 0,
        "failed": 0,
        "left_untried": 0,
    }
    assert summary_text([]) == "schedules: no kernels"


def test_trials_are_counted_and_said() -> None:
    measured = Outcome(status="measured", seconds=1.0, default_seconds=1.5)
    outcomes = [
        measured,
        dataclasses.replace(measured, seconds=1.49),
        Outcome(status="wrong"),
        Outcome(status="crashed"),
    ]
    tried = [TriedSchedule(kernel="k", entry="0", level="team", claimed=2.0, outcome=one) for one in outcomes]
    report = TrialReport(tried=tuple(tried), left=5)
    assert summary_text([ScheduleChoice()], report) == (
        "schedules: 1 from rules; 4 tried, 1 of them no faster here, 2 failed; 5 left for the next fit"
    )
    counts = summary([ScheduleChoice()], report)
    assert (counts["tried"], counts["no_faster"], counts["failed"], counts["left_untried"]) == (4, 1, 2, 5)
    assert TrialReport.from_json(report.to_json()) == report
