"""Parameters and state that live in storage between their uses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgetrain.errors import InternalError, PlanInfeasibleError
from edgetrain.graph.ir import Role, TrainGraph
from edgetrain.planner.explain import explain
from edgetrain.planner.known_solvers import SOLVERS
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget, Compute, Free, PageIn, PageOut, Step, replay
from edgetrain.planner.references.brute_force import cheapest
from edgetrain.planner.solvers import OUR_SOLVERS
from edgetrain.planner.solvers.keep_all import keep_all_steps
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.planner.stored import storable, stored_prefixes
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes, parse_bytes
from tests.edgetrain.planner.questions import asked
from tests.edgetrain.planner.training_graphs import chain, graph_of, op, random_costs, random_graph, tensor, unit_costs

PAGE = 4096
STORAGE = Storage(
    read_bytes_per_s=PAGE,
    write_bytes_per_s=PAGE / 2,
    joules_per_byte_read=1 / PAGE,
    joules_per_byte_written=3 / PAGE,
    latency_s=0.0,
)


def heavy(graph: TrainGraph, pages: int = 2) -> TrainGraph:
    """The same graph with parameters and state of some pages each."""
    large = {
        t.name: tensor(t.name, pages * PAGE, t.role) if t.role in (Role.PARAMETER, Role.STATE) else t
        for t in graph.tensors.values()
    }
    return replace(graph, tensors=large)


def one_weight() -> TrainGraph:
    tensors = [tensor("x", 64, Role.INPUT), tensor("w", PAGE, Role.PARAMETER), tensor("a", PAGE), tensor("g", PAGE)]
    return graph_of(tensors, [op("f", ("x", "w"), ("a",)), op("b", ("a",), ("g",)), op("u", ("g", "w"), ("w",))])


def walk(*steps: Step) -> float:
    graph = one_weight()
    return replay(graph, "step", steps, unit_costs(graph), STORAGE).joules


def test_a_clean_weight_goes_for_nothing_and_comes_back_for_a_read() -> None:
    joules = walk(
        *(PageIn("w"), Compute("f"), Free("w"), Compute("b"), Free("a")),
        *(PageIn("w"), Compute("u"), PageOut("w"), Free("w"), Free("g")),
    )
    assert joules == 3.0 + 2 * 1.0 + 3.0  # three ops, two reads, one write after the update


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ((Compute("f"), PageIn("w")), "op `f` reads `w`, which is not in memory"),
        (
            (PageIn("w"), Compute("f"), Compute("b"), Compute("u"), Free("w")),
            "the new value of `w` was never written to storage",
        ),
        (
            (PageIn("w"), Compute("f"), PageOut("w"), Compute("b"), Compute("u"), Free("w")),
            "the new value of `w` was never written to storage",
        ),
        (
            (PageIn("w"), Compute("f"), Compute("b"), Compute("u"), Free("w"), PageIn("w")),
            "pages in `w`, which was changed and not paged out since",
        ),
    ],
)
def test_a_plan_that_would_lose_an_update_is_rejected(steps: tuple[Step, ...], problem: str) -> None:
    with pytest.raises(InternalError, match=problem.replace("`", ".")):
        walk(*steps)


def test_an_update_waits_for_the_write_of_the_same_tensor() -> None:
    graph = one_weight()
    steps = (PageIn("w"), Compute("f"), PageOut("w"), Compute("b"), Compute("u"), PageOut("w"))
    found = replay(graph, "step", steps, unit_costs(graph), STORAGE)
    assert found.seconds == 1.0 + 1.0 + 2.0 + 1.0 + 2.0  # read, f, write (b hides behind it), u, write


@pytest.mark.parametrize("seed", range(6))
def test_keep_all_with_everything_stored_is_valid(seed: int) -> None:
    graph = heavy(random_graph(seed, forward_ops=8))
    stored = storable(graph)
    assert stored
    found = replay(graph, "step", keep_all_steps(graph, "step", stored=stored), unit_costs(graph), STORAGE)
    assert {stay.tensor for stay in found.stays} >= stored
    assert not found.recomputed


@pytest.mark.parametrize("solver", sorted(OUR_SOLVERS))
@pytest.mark.parametrize("seed", range(6))
def test_plans_with_stored_tensors_are_valid_inside_their_limit(solver: str, seed: int) -> None:
    graph = heavy(random_graph(seed, forward_ops=7, unit_bytes=1024))
    costs = random_costs(graph, seed)
    stored = storable(graph)
    free = asked(graph, "step", None, costs, STORAGE, stored=stored)
    full = free.peak_bytes(free.everything)
    answers = 0
    for share in (1.0, 0.9, 0.75):
        question = replace(free, limit_bytes=int(share * full), options=SolverOptions(time_limit_s=2.0))
        steps = SOLVERS[solver](question).steps
        if steps is not None:
            answers += 1
            assert question.peak_bytes(steps) <= int(share * full)
    assert answers


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_the_exact_solver_is_as_frugal_as_brute_force_with_stored_tensors(seed: int) -> None:
    graph = heavy(random_graph(seed, forward_ops=2, unit_bytes=PAGE, max_units=2), pages=1 + seed % 2)
    costs = random_costs(graph, seed)
    stored = storable(graph)
    free = asked(graph, "step", None, costs, STORAGE, stored=stored, options=SolverOptions(energy_share=1.0))
    full = free.peak_bytes(free.everything)
    for limit in (full, full - PAGE, full - 2 * PAGE):
        question = replace(free, limit_bytes=limit)
        exact = cheapest(question.problem, limit, objective="joules")
        answer = SOLVERS["milp"](question)
        assert (exact is None) == (answer.steps is None)
        if exact is not None:
            assert answer.cost == pytest.approx(question.replayed(exact).joules)


def test_what_fits_stays_in_memory() -> None:
    graph = heavy(chain(6, nbytes=PAGE))
    costs = {"step": unit_costs(graph)}
    kept = make_plan(graph, Budget(), costs, storage=STORAGE)
    tight = Budget(memory_bytes=Bytes(kept.persistent_bytes + (kept.peak_bytes - kept.persistent_bytes) * 3 // 4))
    assert make_plan(graph, tight, costs, storage=STORAGE).stored == ()


@pytest.mark.parametrize("solver", sorted(OUR_SOLVERS))
@pytest.mark.parametrize("seed", range(3))
def test_budgets_below_the_parameters_are_feasible_with_storage(solver: str, seed: int) -> None:
    graph = heavy(random_graph(seed, forward_ops=12, unit_bytes=256), pages=4)
    costs = {"step": random_costs(graph, seed)}
    kept = make_plan(graph, Budget(), costs)
    budget = Budget(memory_bytes=Bytes(kept.persistent_bytes * 3 // 4))
    options = SolverOptions(time_limit_s=2.0)
    with pytest.raises(PlanInfeasibleError):
        make_plan(graph, budget, costs, solver=solver)
    plan = make_plan(graph, budget, costs, solver=solver, storage=STORAGE, options=options)
    assert plan.stored
    assert plan.peak_bytes <= kept.persistent_bytes * 3 // 4
    assert not plan.persistent_offsets.keys() & set(plan.stored)
    assert plan.saved_bytes == kept.saved_bytes
    assert f"stored: {len(plan.stored)} parameters" in explain(graph, plan).to_text()
    assert sum(explain(graph, plan).bytes_by_label.values()) <= plan.peak_bytes


def test_the_smallest_budget_counts_on_storage_and_works() -> None:
    graph = heavy(chain(8, nbytes=PAGE), pages=4)
    costs = {"step": unit_costs(graph)}
    leasts = []
    for storage in (None, STORAGE):
        with pytest.raises(PlanInfeasibleError) as caught:
            make_plan(graph, Budget(memory_bytes=Bytes(PAGE)), costs, storage=storage)
        leasts.append(parse_bytes(caught.value.what.rpartition(" ")[2]))
    assert leasts[1] < leasts[0] // 2
    assert "in storage between their uses already" in caught.value.why
    plan = make_plan(graph, Budget(memory_bytes=leasts[1]), costs, storage=STORAGE)
    assert plan.peak_bytes <= leasts[1]


def test_what_is_seldom_read_and_never_written_is_stored_first() -> None:
    tensors = [
        *(tensor("x", 64, Role.INPUT), tensor("a", PAGE), tensor("b", PAGE)),
        *(tensor(n, PAGE, Role.PARAMETER) for n in ("trained", "frozen", "twice")),
    ]
    graph = graph_of(
        tensors,
        [
            op("f", ("x", "trained", "frozen", "twice"), ("a",)),
            op("g", ("a", "twice"), ("b",)),
            op("u", ("b", "trained"), ("trained",)),
        ],
    )
    order = list(stored_prefixes(graph, {"step": unit_costs(graph)}, STORAGE))
    assert order == [frozenset({"frozen"}), frozenset({"frozen", "twice"}), storable(graph)]
