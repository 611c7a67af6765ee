from __future__ import annotations

import pytest

from edgetrain.planner.make_plan import smallest_plan
from edgetrain.planner.plan import Budget
from edgetrain.report.operations import by_kind, kind_of, operations
from tests.edgetrain.planner.training_graphs import chain, random_graph, unit_costs


@pytest.mark.parametrize("seed", range(5))
def test_the_operations_add_up_to_the_time_and_energy_of_the_plan(seed: int) -> None:
    graph = random_graph(seed, forward_ops=8)
    costs = {"step": unit_costs(graph)}
    plan = smallest_plan(graph, Budget(), costs)
    found = operations(graph, plan, costs, None)
    assert sum(each.seconds for each in found) == pytest.approx(plan.seconds)
    assert sum(each.joules for each in found) == pytest.approx(plan.joules)
    kinds = by_kind(found)
    assert sum(each.seconds for each in kinds) == pytest.approx(plan.seconds)
    assert sum(each.runs for each in kinds) == sum(each.runs for each in found)


def test_what_is_recomputed_runs_more_than_once_and_every_batch_of_a_step_counts() -> None:
    graph = chain(12)
    costs = {"step": unit_costs(graph)}
    plan = smallest_plan(graph, Budget(), costs)
    once = operations(graph, plan, costs, None)
    assert max(each.runs for each in once) > 1
    thrice = operations(graph, plan, costs, None, accumulate=3)
    assert [each.runs for each in thrice] == [3 * each.runs for each in once]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("conv2d1_add1 of conv1.weight", "conv2d_add"),
        ("max_pool2d_gradient", "max_pool2d_gradient"),
        ("matmul_tn, update of head.weight", "matmul_tn, update"),
        ("sum2", "sum"),
        ("reshape1_reshape4", "reshape_reshape"),
    ],
)
def test_kernels_of_one_kind_have_one_name(source: str, kind: str) -> None:
    assert kind_of(source) == kind
