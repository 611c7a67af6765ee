from __future__ import annotations

import pytest

from edgetrain.errors import DataError, InternalError
from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step
from edgetrain.planner.references.instance_file import (
    InstanceReplay,
    cost_inside,
    instance_problem,
    read_instance,
    replay_instance,
)
from tests.edgetrain.planner.plan_instances import as_text, case, instance

# 0 -> 1 -> 2, and 2 reads 0 again
DIAMOND = instance([4, 3, 2], [[], [0], [0, 1]], [5, 1, 1])
QUESTION: dict[str, object] = {
    "memory_bytes": 9,
    "deadline_s": None,
    "allow": ["remat", "page"],
    "minimize": "joules",
    "best": 7.0,
    "proven": True,
    "infeasible": False,
}


def test_a_file_gives_its_cases_in_order() -> None:
    other = QUESTION | {"memory_bytes": 7, "allow": ["page"], "deadline_s": 8.0, "minimize": "seconds", "best": None}
    first, second = read_instance(as_text(DIAMOND, [QUESTION, other]))
    assert first.instance == DIAMOND
    assert (first.memory_bytes, first.allows_recomputing, first.allows_paging, first.best) == (9, True, True, 7.0)
    assert (second.memory_bytes, second.allows_recomputing, second.allows_paging, second.best) == (7, False, True, None)
    assert (second.deadline_s, second.minimize, second.is_proven) == (8.0, "seconds", True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "not a plan instance"),
        ("{", "not a plan instance"),
        ('{"format": "other/1"}', "other/1"),
        (as_text(DIAMOND, [{"memory_bytes": 9}]), "not a plan instance"),
        (as_text(DIAMOND, []).replace("[0, 1]]", "[1, 0]]").replace("[[0, 1]", "[[1, 0]"), "points backwards"),
    ],
    ids=["a list", "broken JSON", "another format", "a case without its fields", "an edge that points backwards"],
)
def test_anything_else_is_refused(text: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read_instance(text)


def test_replay_counts_every_tensor_in_memory_with_the_output() -> None:
    steps = [Compute("0"), Compute("1"), Compute("2")]
    assert replay_instance(case(DIAMOND, 9), steps) == InstanceReplay(peak_bytes=9, seconds=7.0, joules=7.0)


def test_replay_charges_runs_and_transfers() -> None:
    steps: list[Step] = [
        Compute("0"),
        PageOut("0"),
        Compute("1"),
        Free("0"),
        PageIn("0"),
        Free("0"),
        Compute("0"),
        Compute("2"),
    ]
    found = replay_instance(case(DIAMOND, 9, page=True), steps)
    assert (found.seconds, found.joules) == (12.0, 12.0 + 2.0 + 1.0)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([Compute("1")], "before op 0"),
        ([Compute("0"), Free("0"), Compute("1")], "not in memory"),
        ([Compute("0"), Compute("0")], "runs again"),
        ([Compute("0"), PageIn("0")], "paged in"),
        ([Compute("0"), PageOut("0")], "paged out"),
        ([Compute("0"), Free("1")], "freed"),
        ([Compute("0"), Compute("1")], "op 2 never runs"),
    ],
)
def test_a_plan_against_the_rules_is_refused(steps: list[Step], problem: str) -> None:
    with pytest.raises(InternalError, match=problem):
        replay_instance(case(DIAMOND, 9, recompute=False), steps)


def test_a_plan_over_a_limit_has_no_cost() -> None:
    steps = [Compute("0"), Compute("1"), Compute("2")]
    assert cost_inside(case(DIAMOND, 9), steps) == 7.0
    assert cost_inside(case(DIAMOND, 8), steps) is None
    assert cost_inside(case(DIAMOND, 9, deadline_s=7.0), steps) == 7.0
    assert cost_inside(case(DIAMOND, 9, deadline_s=6.9), steps) is None


def test_without_permission_the_problem_offers_neither_running_again_nor_storage() -> None:
    problem = instance_problem(case(DIAMOND, 9, recompute=False, page=False))
    assert set(problem.rerun_until) == {-1}
    assert problem.transfers is None
