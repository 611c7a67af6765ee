from __future__ import annotations

import pytest

from edgetrain.errors import InternalError
from edgetrain.planner.dump import from_json, to_json
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget, Compute, Free, PageIn, PageOut, Plan
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes, Joules, Seconds
from tests.edgetrain.planner.training_graphs import random_graph, unit_costs

FAST_STORAGE = Storage(
    read_bytes_per_s=1e9, write_bytes_per_s=1e9, joules_per_byte_read=0.0, joules_per_byte_written=0.0, latency_s=0.0
)


@pytest.fixture(scope="module")
def paged_plan() -> Plan:
    graph = random_graph(2, forward_ops=8, unit_bytes=4096)
    costs = {"step": unit_costs(graph)}
    full_bytes = make_plan(graph, Budget(), costs).peak_bytes
    budget = Budget(memory_bytes=Bytes(3 * full_bytes // 4), energy_j=Joules(1e6), deadline_s=Seconds(1e6))
    return make_plan(graph, budget, costs, storage=FAST_STORAGE)


def test_a_plan_with_every_kind_of_step_survives_the_round_trip(paged_plan: Plan) -> None:
    assert {type(step) for step in paged_plan.functions["step"].steps} == {Compute, Free, PageOut, PageIn}
    assert from_json(to_json(paged_plan)) == paged_plan


def test_the_same_plan_gives_the_same_text(paged_plan: Plan) -> None:
    text = to_json(paged_plan)
    assert to_json(from_json(text)) == text


def test_another_format_is_rejected(paged_plan: Plan) -> None:
    text = to_json(paged_plan).replace("edgetrain.plan/1", "edgetrain.plan/99")
    with pytest.raises(InternalError, match=r"edgetrain\.plan/99"):
        from_json(text)


def test_an_unknown_step_is_rejected(paged_plan: Plan) -> None:
    with pytest.raises(InternalError, match="unknown step `teleport`"):
        from_json(to_json(paged_plan).replace('"page-in"', '"teleport"'))
