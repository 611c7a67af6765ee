from __future__ import annotations

from edgetrain.graph.ir import Phase, Role, TrainGraph
from edgetrain.planner.solvers.problem import NEVER, make_problem, op_deadlines
from tests.edgetrain.planner.training_graphs import graph_of, op, tensor, unit_costs


def graph() -> TrainGraph:
    return graph_of(
        [
            tensor("x", 64, Role.INPUT),
            tensor("w", 64, Role.PARAMETER),
            tensor("s", 64, Role.STATE),
            tensor("once", 64),
            tensor("pure", 64),
            tensor("weighted", 64),
            tensor("below", 64),
        ],
        [
            op("statistic", ("x", "s"), ("once", "s")),  # 0: writes state, runs once
            op("pure", ("once",), ("pure",)),  # 1
            op("weighted", ("x", "w"), ("weighted",)),  # 2: until w is updated at 4
            op("below", ("weighted",), ("below",)),  # 3
            op("update", ("pure", "w"), ("w",), Phase.UPDATE),  # 4
            op("end", ("once", "below", "weighted"), (), Phase.UPDATE),  # 5
        ],
    )


def test_an_op_may_run_again_until_something_it_reads_is_updated_and_never_if_it_updates() -> None:
    assert op_deadlines(graph(), graph().functions["step"]) == (-1, NEVER, 4, NEVER, -1, NEVER)


def test_a_tensor_is_recomputable_while_its_sources_are_or_are_still_to_be_read() -> None:
    problem = make_problem(graph(), "step", unit_costs(graph()), None)
    assert dict(zip(problem.tensor_names, problem.recompute_until, strict=True)) == {
        "once": -1,
        "pure": 5,  # `once` cannot come back, but is read at 5 and so kept until then
        "weighted": 4,
        "below": 5,  # `weighted` is read at 5
    }


def test_uses_and_producers_are_positions_in_the_function() -> None:
    problem = make_problem(graph(), "step", unit_costs(graph()), None)
    number = problem.tensor_names.index("weighted")
    assert (problem.producer[number], problem.uses[number]) == (2, (3, 5))
