"""MetaSchedule proposes data that our rule accepts, learns from what it is told, and does the same thing twice."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, topi

from edgetrain_tuner import rules
from edgetrain_tuner.deep import BATCH, Evolution
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.outcome import Outcome
from edgetrain_tuner.rules.metaschedule.rule import NAME
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from edgetrain_tuner.search import LEARNED, RANDOM

pytestmark = pytest.mark.compile

AVX2 = Machine(vector_bits=256, vector_registers=16, cores=2)
needs_xgboost = pytest.mark.skipif(
    importlib.util.find_spec("xgboost") is None, reason="needs `pip install 'edgetrain[deep]'`"
)
MODELS = [RANDOM, pytest.param(LEARNED, marks=needs_xgboost)]


def _product() -> Any:
    a, b = te.placeholder((48, 32), name="a"), te.placeholder((32, 64), name="b")
    return te.create_prim_func([a, b, topi.matmul(a, b)])


def _wide_vectors_are_fast(schedule: Schedule) -> Outcome:
    width = schedule.parameters["decision-1"][-1]
    return Outcome(status="measured", seconds=1.0 / (1 + min(width, 16)), default_seconds=1.0, n=4)


def _nothing_works(_schedule: Schedule) -> Outcome:
    return Outcome(status="failed")


def _proposed(
    count: int, measured: Callable[[Schedule], Outcome], *, cost_model: str = RANDOM, seed: int = 1
) -> list[Schedule]:
    evolution = Evolution(_product(), AVX2, cost_model=cost_model, seed=seed)
    found: list[Schedule] = []
    while len(found) < count and (schedule := evolution.next()) is not None:
        evolution.tell(schedule, measured(schedule))
        found.append(schedule)
    return found


@pytest.mark.parametrize("measured", [_wide_vectors_are_fast, _nothing_works])
def test_every_proposal_is_data_that_the_rule_accepts(measured: Callable[[Schedule], Outcome]) -> None:
    found = _proposed(2 * BATCH, measured)
    assert len(found) == len(set(found)) == 2 * BATCH
    for schedule in found:
        assert schedule.rule == NAME
        rules.apply(_product(), schedule, AVX2)


@pytest.mark.parametrize("cost_model", MODELS)
def test_the_same_seed_and_measurements_give_the_same_proposals(cost_model: str) -> None:
    once, again = (_proposed(4 * BATCH, _wide_vectors_are_fast, cost_model=cost_model) for _ in range(2))
    assert once == again


def test_another_seed_begins_elsewhere() -> None:
    assert _proposed(BATCH, _nothing_works, seed=2) != _proposed(BATCH, _nothing_works, seed=1)


@pytest.mark.parametrize("cost_model", MODELS)
def test_it_goes_on_from_what_was_fast(cost_model: str) -> None:
    """Told that vectors of 16 are fast, it proposes more of them than when it is told nothing."""

    def wide(schedules: list[Schedule]) -> int:
        return sum(schedule.parameters["decision-1"][-1] >= 16 for schedule in schedules[2 * BATCH :])

    told = _proposed(8 * BATCH, _wide_vectors_are_fast, cost_model=cost_model)
    assert wide(told) > wide(_proposed(8 * BATCH, _nothing_works, cost_model=cost_model))


def test_a_kernel_without_blocks_has_no_design_space() -> None:
    loops = rules.schedule(_product(), AVX2)
    with pytest.raises(ScheduleRefusedError):
        Evolution(loops, AVX2, cost_model=RANDOM)
