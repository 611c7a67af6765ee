from __future__ import annotations

import pytest

from benchmarks.random_placements import random_placement
from edgetrain.planner.placement.model import place
from edgetrain.planner.placement.problem import (
    Copy,
    Drop,
    PlacedOp,
    PlacementProblem,
    Run,
    cost_inside,
    replay_placement,
)
from edgetrain.planner.references.brute_force_placement import cheapest_placement
from edgetrain.units import Bytes


@pytest.mark.parametrize("seed", range(60))
def test_the_program_is_as_cheap_as_brute_force(seed: int) -> None:
    problem = random_placement(seed)
    exact, answer = cheapest_placement(problem), place(problem)
    assert (exact is None) == (answer.steps is None)
    if exact is None:
        assert answer.is_infeasible
        return
    assert answer.steps is not None
    assert answer.cost == pytest.approx(exact[0])
    assert answer.cost == cost_inside(problem, answer.steps)
    assert answer.gap == pytest.approx(0.0, abs=1e-6)


def waiting(*, memory_bytes: tuple[int, int], copy: float) -> PlacementProblem:
    """a → b → c → d, and d reads a again, long after; every op is faster on device 1, c makes a lot."""
    reads: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (0, 2))
    sizes = (2, 2, 4, 0)
    return PlacementProblem(
        name="waiting",
        ops=tuple(
            PlacedOp(name="abcd"[op], reads=r, output_bytes=Bytes(sizes[op]), seconds=(30.0, 1.0), joules=(30.0, 1.0))
            for op, r in enumerate(reads)
        ),
        memory_bytes=(Bytes(memory_bytes[0]), Bytes(memory_bytes[1])),
        copy_seconds_per_byte=copy,
        copy_joules_per_byte=0.0,
    )


def test_everything_runs_on_the_fast_device_where_it_fits() -> None:
    answer = place(waiting(memory_bytes=(8, 8), copy=0.1))
    assert answer.steps is not None
    assert [s for s in answer.steps if not isinstance(s, Drop)] == [Run(op, 1) for op in range(4)]
    assert answer.cost == 4.0


def test_the_other_memory_serves_as_a_place_to_wait() -> None:
    problem = waiting(memory_bytes=(2, 6), copy=0.1)
    answer = place(problem)
    assert answer.steps is not None
    assert [s for s in answer.steps if isinstance(s, Copy)] == [Copy(0, 0), Copy(0, 1)]
    assert replay_placement(problem, answer.steps).peak_bytes == (2, 6)
    assert answer.cost == pytest.approx(4.0 + 2 * 0.2)


def test_dear_copies_are_replaced_by_computing_again() -> None:
    answer = place(waiting(memory_bytes=(2, 6), copy=5.0))
    assert answer.steps is not None
    assert not [s for s in answer.steps if isinstance(s, Copy)]
    assert [s for s in answer.steps if isinstance(s, Run)].count(Run(0, 1)) == 2
    assert answer.cost == 5.0


@pytest.mark.parametrize("seed", range(10))
def test_more_memory_never_costs_more(seed: int) -> None:
    problem = random_placement(seed)
    costs = []
    for extra in (0, 1, 3):
        larger = PlacementProblem(
            name=problem.name,
            ops=problem.ops,
            memory_bytes=(Bytes(problem.memory_bytes[0] + extra), Bytes(problem.memory_bytes[1] + extra)),
            copy_seconds_per_byte=problem.copy_seconds_per_byte,
            copy_joules_per_byte=problem.copy_joules_per_byte,
        )
        cost = place(larger).cost
        costs.append(float("inf") if cost is None else cost)
    assert costs == sorted(costs, reverse=True)
