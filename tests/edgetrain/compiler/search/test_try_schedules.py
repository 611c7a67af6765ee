"""A schedule that was not measured on this machine is tried before it is used, once, and in a process that may die."""

from __future__ import annotations

import dataclasses
import io
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.compiler import process as compiler_process
from edgetrain.compiler.compile import compile_graph
from edgetrain.compiler.compiled import Compiled
from edgetrain.compiler.schedules import KernelRecord, ScheduleChoice, ScheduleStores
from edgetrain.compiler.search.trials import NOTHING_TRIED, Origin, Trials, TrialTerms
from edgetrain.compiler.search.try_schedules import Chosen, TrialBench, choose_after_trials, try_faster_entries
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.extract import Extracted, Kernel
from edgetrain.graph.ir import Op, Phase, TrainGraph
from edgetrain.targets.device import Rates
from edgetrain_tuner.cache.entry import Entry, Workload
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.teams import Team
from edgetrain_tuner.measure.worker import Limits
from edgetrain_tuner.workload import workload_of
from tests.edgetrain.compiler.search.scripted_measuring import asked, measuring
from tests.edgetrain.compiler.test_compile import _request
from tests.edgetrain.compiler.test_schedules import CODEGEN, TARGET, _found, _product_of, _with_rows
from tests.edgetrain_tuner.measure.stand_in import AVX2
from tests.edgetrain_tuner.measure.test_bench import product, tile_of

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("compiler_here")]

ROOT = Path(__file__).resolve().parents[4]
MACHINE = "7" * 16
RATES = Rates(flops_per_s=1e9, memory_bytes_per_s=1e9, launch_s=0.0, joules_per_flop=0.0, joules_per_byte=0.0)
REQUEST = dataclasses.replace(_request(), codegen=CODEGEN)


@pytest.fixture(scope="module")
def plain(build_cache: BuildCache) -> Compiled:
    return compile_graph(_request(), cache=build_cache)


@pytest.fixture(scope="module")
def extracted() -> Extracted:
    return compiler_process._extracted(REQUEST, io.StringIO())


def _terms(
    command: tuple[str, ...],
    *,
    seconds: float | None = 20.0,
    limits: Limits | None = None,
    batches: int | None = None,
) -> TrialTerms:
    origin = Origin(machine=MACHINE, today="2026-01-31", model="digits", tool="test")
    trials = Trials(seconds=seconds, measuring=command, limits=limits or Limits())
    return TrialTerms(origin=origin, threads=1, trials=trials, rates=RATES, batches=batches)


class Machine:
    """A machine with a schedule cache, where every trial ends in the same way."""

    def __init__(self, folder: Path, extracted: Extracted) -> None:
        self.log = folder / "asked"
        self.stores = ScheduleStores(folder=folder / "stores")
        self._extracted = extracted
        self.progress: list[tuple[int, int]] = []

    def put(self, *entries: Entry) -> None:
        with self.stores.opened() as levels:
            levels.user.put_all(entries)

    def put_in_team(self, *entries: Entry) -> None:
        team = Team(url="https://schedules.example.org", folder=self.stores.teams_folder)
        team.remember()
        with Store.open(team.store_path) as store:
            store.put_all(entries)

    def stored(self) -> list[Entry]:
        with self.stores.opened() as levels:
            return list(levels.user)

    def choose(
        self,
        mode: str,
        *,
        seconds: float | None = 20.0,
        limits: Limits | None = None,
        batches: int | None = None,
    ) -> Chosen:
        bench = TrialBench(
            extracted=self._extracted,
            machine=dataclasses.replace(AVX2, vector_bits=128),
            request=REQUEST,
            terms=_terms(measuring(mode, self.log), seconds=seconds, limits=limits, batches=batches),
            progress=lambda done, total: self.progress.append((done, total)),
        )
        return choose_after_trials(bench, _workloads(self._extracted), self.stores)


def _workloads(extracted: Extracted) -> dict[str, Workload]:
    return {kernel.symbol: workload_of(kernel.function) for kernel in extracted.kernels}


@pytest.fixture
def machine(tmp_path: Path, extracted: Extracted) -> Machine:
    return Machine(tmp_path, extracted)


def _claim(records: Mapping[str, KernelRecord], *, dims_factor: int = 1) -> tuple[str, Entry]:
    """A kernel, and an entry of another machine that says: two rows take half the time."""
    symbol, record = _product_of(records)
    return symbol, _found(record, _with_rows(record.choice.schedule, 2), dims_factor=dims_factor)


def test_a_schedule_that_wins_is_used_and_known_from_then_on(machine: Machine, plain: Compiled) -> None:
    symbol, claim = _claim(plain.schedules)
    machine.put(claim)
    chosen = machine.choose("faster")
    assert chosen.choices[symbol].schedule == _with_rows(plain.schedules[symbol].choice.schedule, 2)
    assert (chosen.choices[symbol].source, chosen.choices[symbol].entry) == ("cache", claim.id)
    assert [one.verdict for one in chosen.report.tried] == ["holds"]
    assert machine.progress[-1] == (1, 1)
    before = asked(machine.log)
    assert before == ["start", "open", "trial", "trial", "close"], "the winner is measured twice"
    again = machine.choose("slower")
    assert again.choices[symbol].schedule == chosen.choices[symbol].schedule
    assert again.report == NOTHING_TRIED
    assert asked(machine.log) == before


def test_a_claim_that_does_not_hold_is_outraced_and_the_store_knows(machine: Machine, plain: Compiled) -> None:
    symbol, claim = _claim(plain.schedules)
    boast = dataclasses.replace(claim.measurements[0], seconds=4e-4)
    machine.put(dataclasses.replace(claim, measurements=(boast,)))
    chosen = machine.choose("slower")
    assert symbol not in chosen.choices
    (tried,) = chosen.report.tried
    assert (tried.verdict, tried.claimed, tried.entry, tried.level) == ("slower", 5.0, claim.id, "user")
    (own,) = [m for entry in machine.stored() for m in entry.measurements if m.machine == MACHINE]
    assert own.speedup == 0.5
    before = asked(machine.log)
    assert machine.choose("faster").choices == {}
    assert asked(machine.log) == before, "it is not tried a second time"


def test_a_team_that_says_it_was_measured_here_is_not_believed(machine: Machine, plain: Compiled) -> None:
    symbol, claim = _claim(plain.schedules)
    forged = dataclasses.replace(claim.measurements[0], machine=MACHINE)
    machine.put_in_team(dataclasses.replace(claim, measurements=(forged,)))
    chosen = machine.choose("faster")
    assert (chosen.choices[symbol].source, chosen.choices[symbol].level) == ("cache", "team")
    assert [(one.level, one.verdict) for one in chosen.report.tried] == [("team", "holds")]
    assert machine.choose("slower").report == NOTHING_TRIED


@pytest.mark.parametrize(
    ("mode", "status"), [("wrong", "wrong"), ("crash", "crashed"), ("hang", "timed out")], ids=lambda word: word
)
def test_what_is_wrong_crashes_or_hangs_is_not_used_and_kept_as_knowledge(
    machine: Machine, plain: Compiled, mode: str, status: str
) -> None:
    symbol, claim = _claim(plain.schedules)
    machine.put(claim)
    chosen = machine.choose(mode, limits=Limits(compile_s=1.0))
    assert symbol not in chosen.choices
    assert [one.outcome.status for one in chosen.report.tried] == [status]
    assert sorted(entry.outcome for entry in machine.stored()) == ["failed", "faster"]
    before = asked(machine.log)
    assert machine.choose("faster").choices == {}
    assert asked(machine.log) == before


def test_a_like_kernel_s_schedule_is_refitted_and_tried_before_it_is_used(machine: Machine, plain: Compiled) -> None:
    _, claim = _claim(plain.schedules, dims_factor=2)
    machine.put(claim)
    chosen = machine.choose("faster")
    assert chosen.choices
    assert {choice.source for choice in chosen.choices.values()} == {"transferred"}
    assert {choice.entry for choice in chosen.choices.values()} == {claim.id}
    later = machine.choose("slower")
    assert later.report == NOTHING_TRIED
    assert {s: c.schedule for s, c in later.choices.items()} == {s: c.schedule for s, c in chosen.choices.items()}
    assert {choice.source for choice in later.choices.values()} == {"cache"}, "now it was found for this kernel"


def test_a_like_kernel_s_schedule_that_loses_leaves_the_rule_s_and_is_not_tried_again(
    machine: Machine, plain: Compiled
) -> None:
    _, claim = _claim(plain.schedules, dims_factor=2)
    machine.put(claim)
    assert machine.choose("slower").choices == {}
    before = asked(machine.log)
    assert machine.choose("faster").choices == {}
    assert asked(machine.log) == before


def test_a_schedule_of_a_rule_that_cannot_write_the_kernel_is_refused_without_a_process(
    machine: Machine, plain: Compiled
) -> None:
    symbol, record = _product_of(plain.schedules)
    unfit = dataclasses.replace(_with_rows(record.choice.schedule, 2), rule="no-such-rule")
    machine.put(_found(record, unfit, dims_factor=2))
    chosen = machine.choose("faster")
    assert symbol not in chosen.choices
    assert {one.outcome.status for one in chosen.report.tried} == {"refused"}
    assert chosen.report.left == 0
    assert asked(machine.log) == []
    assert machine.choose("faster").report == NOTHING_TRIED


def test_what_was_found_for_other_registers_is_neither_tried_nor_used(machine: Machine, plain: Compiled) -> None:
    _, claim = _claim(plain.schedules)
    machine.put(dataclasses.replace(claim, target=dataclasses.replace(TARGET, vector_bits=512)))
    chosen = machine.choose("faster")
    assert (chosen.choices, chosen.report) == ({}, NOTHING_TRIED)
    assert asked(machine.log) == []


def test_what_there_is_no_time_for_has_the_rule_s_and_is_tried_the_next_time(machine: Machine, plain: Compiled) -> None:
    symbol, claim = _claim(plain.schedules)
    machine.put(claim)
    late = machine.choose("faster", seconds=1e-9)
    assert (late.choices, late.report.tried, late.report.left) == ({}, (), 1)
    never = machine.choose("faster", seconds=0.0)
    assert (never.choices, never.report) == ({}, NOTHING_TRIED)
    assert symbol in machine.choose("faster").choices


def test_a_time_that_the_user_gives_holds_however_short_the_run_is(machine: Machine, plain: Compiled) -> None:
    symbol, claim = _claim(plain.schedules)
    machine.put(claim)
    assert symbol in machine.choose("faster", seconds=20.0, batches=1).choices


def test_a_kernel_that_cannot_be_measured_is_told_and_nothing_is_learned(machine: Machine, plain: Compiled) -> None:
    _, claim = _claim(plain.schedules)
    machine.put(claim)
    chosen = machine.choose("unopened")
    assert chosen.choices == {}
    assert list(chosen.report.unmeasured.values()) == ["MemoryError: too large"]
    assert machine.stored() == [claim]


def test_numbers_are_compared_and_processes_are_restarted_in_earnest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measuring process whose tiles of 2 rows compute nonsense, of 3 never end, of 4 end it, of 5 do not compile."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'tuner'}")
    function = product()
    op = Op(name="0", kernel="k", reads=("a", "b"), writes=("c",), phase=Phase.FORWARD)
    graph = TrainGraph(name="one", tensors={}, functions={"step": (op,)})
    kernel = Kernel(symbol="k", function=function)
    workload = workload_of(function)
    claimed = {rows: _found_for(workload, rows) for rows in (2, 3, 4, 5, 6)}
    stores = ScheduleStores(folder=tmp_path)
    with stores.opened() as levels:
        levels.user.put_all(claimed.values())
    command = (sys.executable, "-m", "tests.edgetrain_tuner.measure.stand_in")
    bench = TrialBench(
        extracted=Extracted(graph=graph, kernels=(kernel,), initial={}),
        machine=AVX2,
        request=REQUEST,
        terms=_terms(command, seconds=None, limits=Limits(compile_s=5.0)),
        progress=lambda *_: None,
    )
    report = try_faster_entries(bench, stores)
    statuses = {one.entry: one.outcome.status for one in report.tried}
    expected = {2: "wrong", 3: "timed out", 4: "crashed", 5: "failed", 6: "measured"}
    assert {rows: statuses[entry.id] for rows, entry in claimed.items()} == expected
    with stores.opened() as levels:
        failed = [entry for entry in levels.user if entry.outcome == "failed"]
    assert len(failed) == 4


def _found_for(workload: Workload, rows: int) -> Entry:
    record = KernelRecord(workload=workload, asked=ScheduleChoice(), choice=ScheduleChoice())
    return _found(record, tile_of(rows))


def test_compiling_twice_tries_once_and_gives_the_same_program(
    plain: Compiled, build_cache: BuildCache, tmp_path: Path
) -> None:
    symbol, claim = _claim(plain.schedules, dims_factor=2)
    log, stores = tmp_path / "asked", ScheduleStores(folder=tmp_path / "stores")
    with stores.opened() as levels:
        levels.user.put(claim)
    terms = _terms(measuring("faster", log))
    first = compile_graph(REQUEST, cache=build_cache, stores=stores, terms=terms)
    assert [one.verdict for one in first.trials.tried] == ["holds"]
    assert first.identity("host") != plain.identity("host")
    assert first.schedules[symbol].choice.source == "transferred"
    before = asked(log)
    second = compile_graph(REQUEST, cache=build_cache, stores=stores, terms=terms)
    assert asked(log) == before
    assert (second.directory, second.trials) == (first.directory, NOTHING_TRIED)
    assert (second.schedules[symbol].choice.source, second.schedules[symbol].choice.level) == ("cache", "user")


def test_a_short_run_tries_as_well(machine: Machine, plain: Compiled) -> None:
    symbol, claim = _claim(plain.schedules)
    machine.put(claim)
    assert symbol in machine.choose("faster", seconds=None, batches=1).choices


def test_what_fails_is_warned_of_with_its_entry_and_level(
    plain: Compiled, build_cache: BuildCache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    symbol, claim = _claim(plain.schedules)
    stores = ScheduleStores(folder=tmp_path / "stores")
    with stores.opened() as levels:
        levels.user.put(claim)
    with caplog.at_level(logging.WARNING):
        compiled = compile_graph(
            REQUEST, cache=build_cache, stores=stores, terms=_terms(measuring("wrong", tmp_path / "asked"))
        )
    assert compiled.identity("host") == plain.identity("host")
    assert compiled.schedules[symbol].choice == plain.schedules[symbol].choice
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"the schedule {claim.id[:12]} (user) for contraction")
    assert warning.endswith("is not used: wrong, differs by 5.0e-01 of the largest element")
