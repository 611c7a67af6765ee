"""A run that is told between steps what it may use: with the real engine, and programs small enough to check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.free_memory import MemoryReading
from edgetrain.program.artifact import Artifact
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.files.folders import JobRecord
from edgetrain.run.files.run_folder import LIVE, REQUEST
from edgetrain.run.limits.exchange import Request, hold_run, read_state
from edgetrain.run.limits.governor import Beginning, Governor, Limit
from edgetrain.run.limits.ladder import Ladder, Rung
from edgetrain.run.limits.period import Period
from edgetrain.run.limits.pressure import PressureLimit, PressureSettings
from edgetrain.run.loop.step_log import LOG, StepLog, open_log
from tests.edgetrain.program.tiny_program import (
    ARENA_BYTES,
    initial_values,
    reference_step,
    some_input,
    tiny_artifact,
)

SPARE_BYTES = 50_000
LARGE_BYTES = ARENA_BYTES + SPARE_BYTES
KEY = "ab" * 32


def small_rung() -> Rung:
    return Rung.of(tiny_artifact("recompute"))


def large_rung() -> Rung:
    """Quicker as well: that is what more memory is for."""
    return replace(Rung.of(tiny_artifact("keep", spare_bytes=SPARE_BYTES)), planned_seconds=0.1)


class Allowed:
    """A limit that is what the test says it is."""

    cause = "share"
    is_budget = True

    def __init__(self, nbytes: int | None) -> None:
        self.nbytes = nbytes
        self.is_free = True
        self.settled: list[int] = []

    def allowance(self, ladder: Ladder, rung: Rung) -> int | None:
        return self.nbytes

    def reserve(self, nbytes: int) -> bool:
        return self.is_free

    def settle(self, nbytes: int) -> None:
        self.settled.append(nbytes)


def beginning(folder: Path, rungs: tuple[Rung, ...], budget: int | None) -> Beginning:
    return Beginning(
        folder=folder,
        compiled_directory=folder,
        compiled_key=KEY,
        rung=large_rung(),
        ladder=Ladder.of(rungs),
        budget_bytes=budget,
    )


@contextmanager
def governed(
    folder: Path, *limits: Limit, rungs: tuple[Rung, ...] = (), budget: int | None = None
) -> Iterator[tuple[Governor, LocalEngine, StepLog]]:
    large = tiny_artifact("keep", spare_bytes=SPARE_BYTES)
    with hold_run(folder), LocalEngine(large, threads=1, page_directory=folder) as engine:
        step_log = open_log(folder / LOG, after_step=0)
        governor = Governor(engine, beginning(folder, rungs or (large_rung(),), budget), limits)
        governor.begin(0, 10)
        yield governor, engine, step_log
        step_log.close()


def leave(folder: Path, request: Request) -> None:
    staged = folder / "staged"
    staged.write_text(json.dumps(request.to_json()))
    staged.replace(folder / REQUEST)


def asks_for(nbytes: int, rung: Rung, *, key: str = KEY) -> Request:
    return Request(id=f"{nbytes} bytes", budget_bytes=nbytes, rung=rung, compiled_key=key)


def events(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def test_a_lower_budget_is_met_after_the_step_and_answered_when_it_was_measured(tmp_path: Path) -> None:
    JobRecord(target="host", solver="greedy", memory_bytes=90_000).write(tmp_path)
    with governed(tmp_path, budget=100_000) as (governor, engine, step_log):
        engine.call("step")
        assert not governor.between_steps(1, step_log)
        leave(tmp_path, asks_for(60_000, small_rung()))
        engine.call("step")
        assert governor.between_steps(2, step_log)
        assert engine.artifact == tiny_artifact("recompute")
        assert read_state(tmp_path).answered == "", "there is nothing to measure yet"
        engine.call("step")
        assert not governor.between_steps(3, step_log)
        state = read_state(tmp_path)
        assert (state.answered, state.refusal) == ("60000 bytes", "")
        assert (state.budget_bytes, state.rung, state.since_step) == (60_000, small_rung(), 2)
        assert 0 < state.measured_peak_bytes <= ARENA_BYTES
        first, last = governor.periods()
    record = JobRecord.read(tmp_path)
    assert record is not None
    assert record.memory_bytes == 60_000, "--resume would go back to the old budget"
    assert (first.budget_bytes, first.planned_peak_bytes, first.after_step) == (100_000, LARGE_BYTES, 0)
    assert (last.budget_bytes, last.planned_peak_bytes, last.after_step, last.cause) == (
        60_000,
        ARENA_BYTES,
        2,
        "asked",
    )
    assert first.is_within_budget
    assert last.is_within_budget
    (event,) = events(tmp_path)
    assert event["step"] == 2
    assert event["event"] == "budget"
    assert event["from"] == {"budget_bytes": 100_000, "planned_peak_bytes": LARGE_BYTES}
    assert event["to"] == {"budget_bytes": 60_000, "planned_peak_bytes": ARENA_BYTES}


def test_a_raised_budget_goes_back_to_the_quicker_plan(tmp_path: Path) -> None:
    with governed(tmp_path, rungs=(small_rung(), large_rung())) as (governor, engine, step_log):
        for step, (nbytes, rung) in enumerate([(60_000, small_rung()), (200_000, large_rung())], start=1):
            leave(tmp_path, asks_for(nbytes, rung))
            engine.call("step")
            assert governor.between_steps(step, step_log)
            assert read_state(tmp_path).rungs == (small_rung(), large_rung())
        assert engine.artifact.manifest.arena_bytes == LARGE_BYTES


def test_a_question_is_answered_at_once_and_changes_nothing(tmp_path: Path) -> None:
    with governed(tmp_path) as (governor, engine, step_log):
        leave(tmp_path, Request(id="how are you"))
        engine.call("step")
        assert not governor.between_steps(4, step_log)
        assert (read_state(tmp_path).answered, read_state(tmp_path).step) == ("how are you", 4)
        assert len(governor.periods()) == 1
    assert events(tmp_path) == []


@pytest.mark.parametrize(
    ("key", "program", "words"),
    [("cd" * 32, None, "other kernels"), (KEY, Path("/nowhere"), "is not a compiled program")],
)
def test_a_plan_that_cannot_be_used_is_refused_and_the_run_goes_on(
    key: str, program: Path | None, words: str, tmp_path: Path
) -> None:
    rung = small_rung()
    request_ = asks_for(60_000, replace(rung, program=program or rung.program), key=key)
    JobRecord(target="host", solver="greedy", memory_bytes=90_000).write(tmp_path)
    with governed(tmp_path, budget=100_000) as (governor, engine, step_log):
        leave(tmp_path, request_)
        assert not governor.between_steps(1, step_log)
        state = read_state(tmp_path)
        assert state.answered == request_.id
        assert words in state.refusal
        assert (state.budget_bytes, state.rungs) == (100_000, (large_rung(),))
        engine.call("step")
        assert len(governor.periods()) == 1
    record = JobRecord.read(tmp_path)
    assert record is not None
    assert record.memory_bytes == 90_000


def test_a_request_at_the_very_end_is_answered_too(tmp_path: Path) -> None:
    with governed(tmp_path) as (governor, _, step_log):
        leave(tmp_path, asks_for(60_000, small_rung()))
        governor.between_steps(9, step_log)
        governor.end(9)
        assert (read_state(tmp_path).answered, read_state(tmp_path).refusal) == ("60000 bytes", "")
        leave(tmp_path, asks_for(50_000, small_rung()))
        governor.end(9)
        assert read_state(tmp_path).refusal == "the run has taken its last step"


def test_a_limit_moves_the_run_down_and_up_and_is_told_what_it_uses(tmp_path: Path) -> None:
    limit = Allowed(None)
    with governed(tmp_path, limit, rungs=(small_rung(), large_rung())) as (governor, engine, step_log):
        for step, (nbytes, arena) in enumerate([(60_000, ARENA_BYTES), (60_001, ARENA_BYTES), (None, LARGE_BYTES)]):
            limit.nbytes = nbytes
            governor.between_steps(step, step_log)
            engine.call("step")
            assert engine.artifact.manifest.arena_bytes == arena
        assert [period.budget_bytes for period in governor.periods()] == [None, 60_000, None]
    assert limit.settled == [LARGE_BYTES, ARENA_BYTES, LARGE_BYTES]
    assert [event["cause"] for event in events(tmp_path)] == ["share", "share"]


def test_the_run_does_not_grow_into_what_another_still_holds(tmp_path: Path) -> None:
    limit = Allowed(60_000)
    with governed(tmp_path, limit, rungs=(small_rung(), large_rung())) as (governor, engine, step_log):
        governor.between_steps(1, step_log)
        limit.nbytes, limit.is_free = 200_000, False
        assert not governor.between_steps(2, step_log)
        limit.is_free = True
        assert governor.between_steps(3, step_log)
        assert engine.artifact.manifest.arena_bytes == LARGE_BYTES


def test_below_the_lowest_plan_the_run_goes_on_with_that(tmp_path: Path) -> None:
    with governed(tmp_path, Allowed(1), rungs=(small_rung(), large_rung())) as (governor, engine, step_log):
        governor.between_steps(1, step_log)
        engine.call("step")
        assert engine.artifact == tiny_artifact("recompute")


def test_a_rung_that_cannot_be_opened_is_not_tried_again(tmp_path: Path) -> None:
    gone = replace(small_rung(), program=Path("/nowhere"))
    with governed(tmp_path, Allowed(60_000), rungs=(gone, large_rung())) as (governor, engine, step_log):
        for step in range(3):
            assert not governor.between_steps(step, step_log)
            engine.call("step")
        assert len(governor.periods()) == 1


def test_a_disk_that_takes_no_news_does_not_end_the_run(tmp_path: Path) -> None:
    with governed(tmp_path) as (governor, engine, step_log):
        (tmp_path / LIVE).unlink()
        (tmp_path / LIVE).mkdir()
        leave(tmp_path, Request(id="1"))
        governor.between_steps(1, step_log)
        engine.call("step")
        (tmp_path / LIVE).rmdir()


def test_a_system_short_of_memory_gets_some_back_and_the_numbers_stay(tmp_path: Path) -> None:
    room, now = 10**9, 0.0

    def read() -> MemoryReading:
        return MemoryReading(available_bytes=room, total_bytes=10**9, stalled_share=0.0)

    limit = PressureLimit(read, PressureSettings(calm_s=30.0), lambda: now)
    weights, arenas = initial_values()["w"].astype(np.float32), []
    with governed(tmp_path, limit, rungs=(small_rung(), large_rung())) as (governor, engine, step_log):
        engine.tensor("x")[...] = some_input()
        for step in range(1, 7):
            engine.call("step")
            weights = reference_step(weights, some_input())[1]
            assert engine.tensor("w").tobytes() == weights.tobytes()
            now, room = now + 20.0, 0 if step == 2 else 10**9
            governor.between_steps(step, step_log)
            arenas.append(engine.artifact.manifest.arena_bytes)
    assert arenas == [LARGE_BYTES, ARENA_BYTES, ARENA_BYTES, ARENA_BYTES, LARGE_BYTES, LARGE_BYTES]
    assert [event["cause"] for event in events(tmp_path)] == ["pressure", "pressure"]


class Recorder:
    """Goes over to anything."""

    def switch(self, artifact: Artifact) -> None:
        """Nothing to do."""

    def measured_peak_bytes(self) -> int:
        return 1


LIMITS = st.none() | st.sampled_from([1, ARENA_BYTES, ARENA_BYTES + 1, LARGE_BYTES, LARGE_BYTES + 1])


@given(moves=st.lists(st.tuples(LIMITS, LIMITS), min_size=1, max_size=12), budget=LIMITS)
def test_what_runs_is_always_within_every_limit_or_the_lowest(
    moves: list[tuple[int | None, int | None]], budget: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    one, two = Allowed(None), Allowed(None)
    start = beginning(folder, (small_rung(), large_rung()), budget)
    governor = Governor(Recorder(), start, (one, two))
    governor.begin(0, len(moves))
    step_log = open_log(folder / LOG, after_step=0)
    for step, (first, second) in enumerate(moves, start=1):
        one.nbytes, two.nbytes = first, second
        governor.between_steps(step, step_log)
        running = governor.periods()[-1].planned_peak_bytes
        bounds = [n for n in (first, second, budget) if n is not None]
        assert running == ARENA_BYTES or all(running <= n for n in bounds)
        if all(n >= LARGE_BYTES for n in bounds):
            assert running == LARGE_BYTES
        assert one.settled[-1] == running
    step_log.close()


def test_a_phase_over_its_budget_is_not_within_it() -> None:
    period = Period(after_step=0, cause="", budget_bytes=10, planned_peak_bytes=10, measured_peak_bytes=11)
    assert not period.is_within_budget
    assert replace(period, budget_bytes=None).is_within_budget


def test_the_same_plan_as_another_program_is_not_worth_going_over_to(tmp_path: Path) -> None:
    """A ladder's top is planned for a budget, the run's first plan for none: two folders with the same numbers."""
    twin = replace(large_rung(), program=Path("/another"))
    with governed(tmp_path, Allowed(None), rungs=(small_rung(), twin)) as (governor, _, step_log):
        assert not governor.between_steps(1, step_log)
        assert len(governor.periods()) == 1
