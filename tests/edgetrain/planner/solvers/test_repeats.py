from __future__ import annotations

import random

import pytest

from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph
from edgetrain.planner.plan import replay
from edgetrain.planner.solvers import search as searching
from edgetrain.planner.solvers.milp import answer_milp
from edgetrain.planner.solvers.mip_solvers import Effort, HighsProgram
from edgetrain.planner.solvers.problem import Problem, make_problem
from edgetrain.planner.solvers.refine import refine
from edgetrain.planner.solvers.repeats import find_repeats, find_twins
from edgetrain.planner.solvers.search import SearchOptions
from edgetrain.planner.solvers.timeline import windowed_timeline
from edgetrain.planner.solvers.translate import steps_of
from edgetrain.planner.solvers.windowed_model import Aim, WindowedModel, build_model, touching_slots
from tests.edgetrain.planner.questions import asked, keep_all_floor
from tests.edgetrain.planner.training_graphs import chain, graph_of, op, random_costs, tensor, unit_costs


def blocks(count: int, *, per_block: int = 3) -> TrainGraph:
    """Equal blocks of layers of different sizes, forward and backward, with an update after each gradient."""
    sizes = [1024 * (1 + layer) for layer in range(per_block)]
    tensors: list[Tensor] = [tensor("x", 64, Role.INPUT), tensor("loss", 64, Role.OUTPUT)]
    forward: list[Op] = []
    backward: list[Op] = []
    for i in range(count * per_block):
        before = f"a{i - 1}" if i else "x"
        nbytes = sizes[i % per_block]
        tensors += [tensor(f"w{i}", 64, Role.PARAMETER), tensor(f"a{i}", nbytes), tensor(f"g{i}", nbytes)]
        forward.append(op(f"f{i}", (before, f"w{i}"), (f"a{i}",)))
        gradient = [op(f"b{i}", (f"g{i}", f"w{i}", before), (f"g{i - 1}",), Phase.BACKWARD)] if i else []
        backward[:0] = [*gradient, op(f"u{i}", (f"g{i}", before, f"w{i}"), (f"w{i}",), Phase.UPDATE)]
    last = count * per_block - 1
    loss = op("loss", (f"a{last}",), ("loss", f"g{last}"), Phase.LOSS)
    return graph_of(tensors, [*forward, loss, *backward])


def problem_of(graph: TrainGraph) -> Problem:
    return make_problem(graph, "step", unit_costs(graph), None)


def binaries(model: WindowedModel) -> int:
    again = {run.name for slot, run in zip(model.timeline, model.runs, strict=True) if not slot.is_first}
    return len(again) + len({keep.name for keep in model.keeps.values()})


def test_ops_of_equal_blocks_are_of_one_kind_in_the_order_of_the_blocks() -> None:
    problem = problem_of(blocks(8))
    repeats = find_repeats(problem)
    inner = [problem.op_names.index(f"f{3 * block + 1}") for block in range(2, 6)]
    assert len({repeats.kinds[op] for op in inner}) == 1
    assert [repeats.ranks[op] - repeats.ranks[inner[0]] for op in inner] == [0, 1, 2, 3]
    assert repeats.kinds[inner[0]] != repeats.kinds[problem.op_names.index("f7") + 1], "layers of a block differ"


def test_to_recompute_a_layer_for_its_own_gradient_is_one_decision_for_all_blocks() -> None:
    problem = problem_of(blocks(8))
    timeline = windowed_timeline(problem, 2)
    twins = find_twins(problem, timeline, touching_slots(problem, timeline))
    name = problem.op_names
    again = [
        twins.by_slot[number]
        for number, slot in enumerate(timeline)
        if name[slot.op] in ("f7", "f10", "f13") and name[slot.stage] == f"b{int(name[slot.op][1:]) + 1}"
    ]
    assert len(again) == 3
    assert len(set(again)) == 1


def test_graphs_without_repeats_keep_their_decisions_apart() -> None:
    rng = random.Random(0)
    graph = chain(12)
    sizes = dict(graph.tensors)
    for number, name in enumerate(sorted(n for n in sizes if graph.tensors[n].is_temporary)):
        sizes[name] = tensor(name, 64 * (1 + 97 * number + rng.randint(1, 9)))
    apart = TrainGraph(name="apart", tensors=sizes, functions=graph.functions)
    problem = problem_of(apart)
    timeline = windowed_timeline(problem, 3)
    aim = Aim(limit_bytes=10**6, seconds_weight=1.0)
    whole, merged = (build_model(problem, timeline, aim, merges_twins=merges) for merges in (False, True))
    assert binaries(merged) == binaries(whole)


@pytest.mark.parametrize("share", [0.8, 0.6])
def test_a_solution_of_the_smaller_program_is_a_plan_inside_the_limit(share: float) -> None:
    graph = blocks(8)
    costs = random_costs(graph, 1)
    limit = int(share * keep_all_floor(graph, "step", costs, None))
    problem = make_problem(graph, "step", costs, None)
    timeline = windowed_timeline(problem, 3)
    aim = Aim(limit_bytes=limit, seconds_weight=1.0)
    whole, merged = (build_model(problem, timeline, aim, merges_twins=merges) for merges in (False, True))
    assert binaries(merged) < 0.6 * binaries(whole)
    outcome = HighsProgram(merged.program).solve(Effort(seconds=60.0, nodes=50))
    assert outcome.values
    found = replay(graph, "step", refine(problem, steps_of(merged, outcome.values), limit), costs)
    assert found.temporary_peak_bytes <= limit


def test_the_search_decides_repeats_once_where_the_whole_program_is_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "_PATIENT_BINARIES", 10)
    monkeypatch.setattr(searching, "_FLAT_SHARE_LARGE", 0.0)
    built: list[bool] = []

    def spy(*arguments: object, merges_twins: bool = False, **options: object) -> WindowedModel:
        built.append(merges_twins)
        return build_model(*arguments, merges_twins=merges_twins, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(searching, "build_model", spy)
    graph = blocks(10)
    costs = random_costs(graph, 2)
    limit = int(0.5 * keep_all_floor(graph, "step", costs, None))
    question = asked(graph, "step", limit, costs, None)
    for merges in (True, False):
        built.clear()
        options = SearchOptions(time_limit_s=60.0, nodes=1, merges_repeats=merges)
        answer = answer_milp(question, search_options=options)
        assert answer.steps is not None
        assert any(built) is merges
