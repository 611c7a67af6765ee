from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from edgetrain.errors import PlanInfeasibleError, UsageError
from edgetrain.graph.ir import Phase, Role
from edgetrain.planner.known_solvers import SOLVERS
from edgetrain.planner.make_plan import (
    is_plannable,
    least_bytes,
    make_plan,
    smallest_budget,
    try_plan,
)
from edgetrain.planner.plan import Budget
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes, Joules, Seconds, parse_bytes
from tests.edgetrain.planner.plan_checks import check, costs_of, with_evaluate
from tests.edgetrain.planner.questions import asked
from tests.edgetrain.planner.training_graphs import chain, graph_of, op, random_costs, random_graph, tensor, unit_costs

STORAGE = Storage(
    read_bytes_per_s=4096.0,
    write_bytes_per_s=2048.0,
    joules_per_byte_read=1e-4,
    joules_per_byte_written=3e-4,
    latency_s=0.0,
)


def test_without_a_budget_nothing_is_recomputed() -> None:
    graph = with_evaluate(chain(8))
    costs = costs_of(graph)
    plan = make_plan(graph, Budget(), costs)
    check(graph, plan, costs)
    assert set(plan.functions) == {"step", "evaluate"}
    assert (plan.seconds, plan.peak_bytes) == (plan.keep_all_seconds, plan.keep_all_bytes)
    assert plan.seconds == sum(cost.seconds for cost in costs["step"].values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.9, 0.6, 0.4])
def test_a_plan_fits_its_budget_with_fragmentation_or_says_what_would(seed: int, share: float) -> None:
    graph = with_evaluate(random_graph(seed, forward_ops=20))
    costs = costs_of(graph, seed)
    memory_bytes = int(share * make_plan(graph, Budget(), costs).peak_bytes)
    budget = Budget(memory_bytes=Bytes(memory_bytes))
    try:
        plan = make_plan(graph, budget, costs)
    except PlanInfeasibleError as error:
        named = re.search(r"the least possible is (\S+)", error.what)
        assert named is not None
        assert parse_bytes(named[1]) > memory_bytes
        plan = make_plan(graph, Budget(memory_bytes=parse_bytes(named[1])), costs)
        assert plan.peak_bytes <= parse_bytes(named[1])
    else:
        assert plan.peak_bytes <= memory_bytes
        assert plan.budget == budget
    check(graph, plan, costs)


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_with_storage_fits_and_keeps_pages_aligned(seed: int) -> None:
    graph = random_graph(seed, forward_ops=10, unit_bytes=4096)
    costs = costs_of(graph, seed)
    full = make_plan(graph, Budget(), costs).peak_bytes
    plan = make_plan(graph, Budget(memory_bytes=Bytes(3 * full // 4)), costs, storage=STORAGE)
    check(graph, plan, costs, STORAGE)
    assert plan.peak_bytes <= 3 * full // 4


@pytest.mark.parametrize("solver", ["greedy", "keep-all"])
def test_the_named_budget_works_with_the_solver_that_named_it(solver: str) -> None:
    graph = chain(20)
    costs = costs_of(graph)
    with pytest.raises(PlanInfeasibleError) as caught:
        make_plan(graph, Budget(memory_bytes=Bytes(1000)), costs, solver=solver)
    named = re.search(r"`--budget (\S+)`", caught.value.fix)
    assert named is not None
    assert named[1] in caught.value.what
    plan = make_plan(graph, Budget(memory_bytes=parse_bytes(named[1])), costs, solver=solver)
    assert plan.peak_bytes <= parse_bytes(named[1])


def test_the_infeasible_error_reads_well() -> None:
    graph = graph_of(
        [
            tensor("x", 1024, Role.INPUT),
            tensor("w", 2048, Role.PARAMETER),
            tensor("hidden", 4096),
            tensor("gradient", 8192),
        ],
        [
            op("dense", ("x", "w"), ("hidden",)),
            replace(op("dense_backward", ("hidden",), ("gradient",), Phase.BACKWARD), source="MatMul_3"),
            op("update", ("gradient", "w"), ("w",), Phase.UPDATE),
        ],
    )
    with pytest.raises(PlanInfeasibleError) as caught:
        make_plan(graph, Budget(memory_bytes=Bytes(4000)), costs_of(graph))
    assert str(caught.value) == (
        "no plan fits 4kB; the least possible is 15.36kB\n"
        "why: at op `dense_backward` (MatMul_3) of `step` memory holds gradients 8.192kB, activations 4.096kB, "
        "parameters 2.048kB, inputs 1.024kB; largest temporaries there: `gradient` (MatMul_3) 8.192kB, "
        "`hidden` (dense) 4.096kB\n"
        "fix: give it more memory with `--budget 15.36kB`, lower train.batch, or train fewer tensors with "
        "`update.mode=head`"
    )


def test_parameters_that_do_not_fit_by_themselves_are_infeasible() -> None:
    graph = chain(4)
    with pytest.raises(PlanInfeasibleError, match="no plan fits 64B"):
        make_plan(graph, Budget(memory_bytes=Bytes(64)), costs_of(graph))


def test_a_deadline_and_an_energy_budget_are_checked_and_both_named() -> None:
    graph = chain(4)
    costs = {"step": unit_costs(graph)}  # 12 ops: 12 s, 12 J
    assert make_plan(graph, Budget(deadline_s=Seconds(12.0), energy_j=Joules(12.0)), costs).seconds == 12.0
    with pytest.raises(PlanInfeasibleError) as caught:
        make_plan(graph, Budget(deadline_s=Seconds(11.0), energy_j=Joules(11.5)), costs)
    assert caught.value.what == (
        "one step takes 12.0 s, the deadline is 11.0 s; one step takes 12 J, the budget is 11.5 J"
    )


def test_a_missed_deadline_says_what_more_memory_would_bring() -> None:
    graph = chain(8)
    costs = {"step": unit_costs(graph)}
    full = make_plan(graph, Budget(), costs)
    with pytest.raises(PlanInfeasibleError, match="nothing is recomputed and a step takes 24"):
        make_plan(graph, Budget(memory_bytes=Bytes(full.peak_bytes - 2048), deadline_s=Seconds(24.0)), costs)


def test_an_unknown_solver_is_a_usage_error() -> None:
    graph = chain(2)
    with pytest.raises(UsageError, match="greedy, keep-all"):
        make_plan(graph, Budget(), costs_of(graph), solver="magic")


def test_the_saved_range_is_known_to_the_plan() -> None:
    graph = chain(4)
    plan = make_plan(graph, Budget(), costs_of(graph))
    saved = [t.name for t in graph.persistent if t.role in (Role.PARAMETER, Role.STATE)]
    assert plan.saved_bytes == 4 * 256
    assert all(plan.persistent_offsets[name] < plan.saved_bytes for name in saved)


# Solvers that know one plan or a few; the exact ones go the same way until something does not fit.
@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("seed", range(8))
def test_whatever_fits_unplanned_is_planned_for_nothing(solver: str, seed: int) -> None:
    graph = with_evaluate(random_graph(seed, forward_ops=4 + seed, unit_bytes=1024))
    costs = costs_of(graph, seed)
    kept = make_plan(graph, Budget(), costs)
    for extra in (0, 64, kept.peak_bytes):
        budget = Budget(memory_bytes=Bytes(kept.peak_bytes + extra))
        plan = make_plan(graph, budget, costs, solver=solver, storage=STORAGE)
        assert (plan.seconds, plan.gap, plan.stored) == (kept.seconds, 0.0, ())
        check(graph, plan, costs, STORAGE)


@pytest.mark.parametrize("storage", [None, STORAGE], ids=["recompute", "page"])
@pytest.mark.parametrize("seed", range(5))
def test_the_objective_of_an_exact_plan_never_rises_with_the_budget(seed: int, storage: Storage | None) -> None:
    """Joules, for which the program is exact; as the solver counts, before packing, which may break a tie."""
    graph = random_graph(seed, forward_ops=5, unit_bytes=1024)
    costs = random_costs(graph, seed)
    free = asked(graph, "step", None, costs, storage, options=SolverOptions(energy_share=1.0))
    full = free.peak_bytes(free.everything)
    found = [SOLVERS["milp"](replace(free, limit_bytes=full * share // 20)).cost for share in range(8, 21)]
    joules = [float("inf") if cost is None else cost for cost in found]
    assert joules[-1] < float("inf")
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(joules))


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_is_never_cheaper_than_its_bound(seed: int) -> None:
    graph = random_graph(seed, forward_ops=8)
    costs = {"step": random_costs(graph, seed)}
    kept = make_plan(graph, Budget(), costs)
    tight = Budget(memory_bytes=Bytes(kept.persistent_bytes + (kept.peak_bytes - kept.persistent_bytes) * 4 // 5))
    exact, quick = (try_plan(graph, tight, costs, solver=solver) for solver in ("milp", "greedy"))
    assert exact is not None
    assert quick is not None
    assert exact.gap is not None
    assert exact.seconds <= quick.seconds
    assert quick.seconds >= exact.seconds * (1 - exact.gap) - 1e-9


@pytest.mark.slow
def test_a_long_search_tells_how_long_it_has_searched() -> None:
    graph = random_graph(1, forward_ops=24)
    costs = {"step": random_costs(graph, 1)}
    kept = make_plan(graph, Budget(), costs)
    told: list[tuple[str, int, int]] = []
    tight = Budget(memory_bytes=Bytes(kept.peak_bytes * 6 // 10))
    options = SolverOptions(time_limit_s=20.0)
    make_plan(graph, tight, costs, solver="milp", options=options, progress=lambda *news: told.append(news))
    assert {stage for stage, _, _ in told} == {"planning step"}
    assert all(0 <= done <= total <= 20 for _, done, total in told)


@pytest.mark.parametrize("solver", ["greedy", "milp"])
def test_an_energy_budget_that_the_fastest_plan_breaks_is_kept_by_another(solver: str) -> None:
    graph = random_graph(3, forward_ops=8, unit_bytes=4096)
    costs = {"step": random_costs(graph, 3)}
    kept = make_plan(graph, Budget(), costs)
    memory = Bytes(kept.persistent_bytes + (kept.peak_bytes - kept.persistent_bytes) * 7 // 10)
    fastest = make_plan(graph, Budget(memory_bytes=memory), costs, solver=solver, storage=STORAGE)
    frugal_options = SolverOptions(energy_share=1.0)
    frugal = make_plan(
        graph, Budget(memory_bytes=memory), costs, solver=solver, storage=STORAGE, options=frugal_options
    )
    assert frugal.joules < fastest.joules
    limit = Joules((frugal.joules + fastest.joules) / 2)
    plan = make_plan(graph, Budget(memory_bytes=memory, energy_j=limit), costs, solver=solver, storage=STORAGE)
    assert plan.joules <= limit
    assert plan.seconds >= fastest.seconds - 1e-9


def test_wear_that_no_plan_keeps_is_named_with_what_would_be_written() -> None:
    graph = chain(8, nbytes=8192)
    costs = {"step": unit_costs(graph)}
    full = make_plan(graph, Budget(), costs)
    budget = Budget(memory_bytes=Bytes(full.peak_bytes - 16384), written_bytes=Bytes(100))
    with pytest.raises(PlanInfeasibleError, match=r"one step writes \S+ to storage, the limit is 100B"):
        make_plan(graph, budget, costs, solver="swap-all", storage=STORAGE)
    assert make_plan(graph, budget, costs, storage=STORAGE).written_bytes == 0


@pytest.mark.slow
def test_the_smallest_budget_is_plannable_and_less_than_the_solvers_floor_is_not() -> None:
    graph = with_evaluate(random_graph(2, forward_ops=20))
    costs = costs_of(graph)
    least = smallest_budget(graph, costs)
    assert is_plannable(graph, least, costs)
    assert make_plan(graph, Budget(memory_bytes=least), costs).peak_bytes <= least
    assert not is_plannable(graph, least_bytes(graph, costs) - 64, costs)


@pytest.mark.parametrize("seed", range(4))
def test_every_tensor_begins_where_its_graph_wants_it(seed: int) -> None:
    graph = replace(with_evaluate(random_graph(seed, forward_ops=12)), alignment_bytes=512)
    costs = costs_of(graph, seed)
    keep_all = make_plan(graph, Budget(), costs)
    tight = make_plan(graph, Budget(memory_bytes=smallest_budget(graph, costs)), costs)
    assert tight.peak_bytes < keep_all.peak_bytes
    for plan in (keep_all, tight):
        check(graph, plan, costs)
        placed = [p.offset for function in plan.functions.values() for p in function.placements]
        assert placed
        assert all(offset % 512 == 0 for offset in (*placed, *plan.persistent_offsets.values()))
