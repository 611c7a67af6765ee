"""Trials take a share of the run, counted by hand on a step of two kernels."""

from __future__ import annotations

import dataclasses

import pytest

from edgetrain.compiler.search.trial_time import LEAST_S, MOST_S, SHARE, StepTimes, allowed_seconds
from edgetrain.compiler.search.trials import Origin, Trials, TrialTerms
from edgetrain.graph.ir import Op, Phase, TrainGraph
from edgetrain.targets.device import Rates
from edgetrain_tuner.cache.entry import Workload

RATES = Rates(flops_per_s=1e9, memory_bytes_per_s=1e8, launch_s=1e-3, joules_per_flop=0.0, joules_per_byte=0.0)
TERMS = TrialTerms(
    origin=Origin(machine="0" * 16, today="2026-01-31", model="m", tool="test"),
    threads=1,
    trials=Trials(),
    rates=RATES,
    batches=100,
)


def _workload(number: int, *, operations: int, moved: int) -> Workload:
    return Workload(
        class_=f"{number:064d}",
        family=f"{number:064d}",
        name="contraction SSR",
        dims=(8, 8, 8),
        dtype="float32",
        operations=operations,
        bytes=moved,
    )


def _op(number: int, kernel: str) -> Op:
    return Op(name=str(number), kernel=kernel, reads=(), writes=(), phase=Phase.FORWARD)


GRAPH = TrainGraph(
    name="two",
    tensors={},
    functions={"step": (_op(0, "heavy"), _op(1, "heavy"), _op(2, "light")), "evaluate": (_op(0, "other"),)},
)
WORKLOADS = {
    "heavy": _workload(1, operations=99_000_000, moved=8),  # 0.1 s a call, twice a step
    "light": _workload(2, operations=8, moved=400_000),  # 5 ms, by its bytes
    "other": _workload(3, operations=9_000_000, moved=8),  # 10 ms, which a step does not call
}


def _times() -> StepTimes:
    return StepTimes.of(GRAPH, WORKLOADS, RATES)


def test_times_are_calls_times_the_slower_of_work_and_traffic() -> None:
    times = _times()
    assert times.step_s == pytest.approx(0.205)
    assert times.kernel_s == pytest.approx({"heavy": 0.2, "light": 0.005, "other": 0.01})


def test_two_symbols_of_one_kernel_are_weighed_together() -> None:
    twice = StepTimes.of(GRAPH, {**WORKLOADS, "light": WORKLOADS["heavy"]}, RATES)
    assert twice.kernel_s["heavy"] == twice.kernel_s["light"] == pytest.approx(0.3)
    assert twice.step_s == pytest.approx(0.3), "each call once"


@pytest.mark.parametrize(
    ("batches", "allowed_s"), [(0, LEAST_S), (100, LEAST_S), (500, SHARE * 102.5), (10**6, MOST_S)]
)
def test_the_allowance_is_a_share_of_the_run_between_limits(batches: int, allowed_s: float) -> None:
    assert allowed_seconds(dataclasses.replace(TERMS, batches=batches), _times()) == pytest.approx(allowed_s)


def test_what_the_user_allows_and_what_precedes_no_run_is_not_weighed() -> None:
    said = dataclasses.replace(TERMS, trials=Trials(seconds=60.0), batches=1)
    assert allowed_seconds(said, _times()) == 60.0
    assert allowed_seconds(dataclasses.replace(TERMS, batches=None), _times()) is None


def test_terms_survive_the_way_to_the_compiler() -> None:
    assert TrialTerms.from_json(TERMS.to_json()) == TERMS
