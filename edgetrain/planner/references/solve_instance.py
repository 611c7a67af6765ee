"""Answers to plan instances, each by the solver that a user names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from edgetrain.errors import UsageError
from edgetrain.planner.plan import Compute, Free, Step
from edgetrain.planner.references.instance_file import (
    Case,
    cost_inside,
    instance_problem,
    read_instance,
    replay_instance,
)
from edgetrain.planner.references.per_tensor import Decisions, capuchin, decided_steps, sqrt_n, swap_all
from edgetrain.planner.references.poet import solve_poet_program
from edgetrain.planner.solvers.answer import NO_ANSWER, Answer
from edgetrain.planner.solvers.greedy import quick_plans
from edgetrain.planner.solvers.problem import ENERGY, Problem, priced
from edgetrain.planner.solvers.search import SearchOptions, search
from edgetrain.planner.solvers.windowed_model import Aim

InstanceSolver = Callable[[Case, float], Answer]  # case, time limit in seconds


__all__ = ["INSTANCE_SOLVERS", "Case", "read_instance", "solve_instance"]


def solve_instance(case: Case, *, solver: str = "milp", time_limit_s: float = 30.0) -> Mapping[str, object]:
    """The answer to one case as plain data: `memory_bytes`, `objective`, `peak_bytes`, `seconds` (of solving), `gap`,
    `feasible` and `solver`; objective, peak and gap are None without a plan.

    Raises `UsageError` for a solver that cannot solve instances.
    """
    solve = _solver(solver)
    started_s = time.monotonic()
    answer = solve(case, time_limit_s)
    elapsed_s = time.monotonic() - started_s
    steps = answer.steps
    return {
        "memory_bytes": int(case.memory_bytes),
        "objective": None if steps is None else cost_inside(case, steps),
        "peak_bytes": None if steps is None else replay_instance(case, steps).peak_bytes,
        "seconds": elapsed_s,
        "gap": answer.gap,
        "feasible": steps is not None,
        "solver": solver,
    }


def _solver(name: str) -> InstanceSolver:
    if name not in INSTANCE_SOLVERS:
        known = ", ".join(sorted(INSTANCE_SOLVERS))
        raise UsageError(f"there is no solver `{name}` for plan instances", fix=f"choose one of {known}")
    return INSTANCE_SOLVERS[name]


def _milp(case: Case, time_limit_s: float) -> Answer:
    problem = instance_problem(case)
    return search(
        problem,
        instance_aim(case),
        lambda steps: cost_inside(case, steps),
        known=_known(case, problem),
        options=SearchOptions(time_limit_s=time_limit_s),
    )


def _checkmate(case: Case, time_limit_s: float) -> Answer:
    return _milp(replace(case, allows_paging=False), time_limit_s)


def _poet(case: Case, time_limit_s: float) -> Answer:
    answer = solve_poet_program(instance_problem(case), instance_aim(case), time_limit_s=time_limit_s)
    cost = None if answer.steps is None else cost_inside(case, answer.steps)
    return Answer(steps=None if cost is None else answer.steps, cost=cost, bound=answer.bound)


def instance_aim(case: Case) -> Aim:
    return Aim(
        limit_bytes=case.memory_bytes,
        seconds_weight=1.0 if case.minimize == "seconds" else 0.0,
        joules_weight=1.0 if case.minimize == "joules" else 0.0,
        deadline_s=case.deadline_s,
    )


def _greedy(case: Case, time_limit_s: float) -> Answer:
    return _cheapest(case, _known(case, instance_problem(case)))


def _keep_all(case: Case, time_limit_s: float) -> Answer:
    return _cheapest(case, [_keep_all_steps(instance_problem(case))])


def _decided(decide: Callable[[Problem], Iterator[Decisions]]) -> InstanceSolver:
    """A baseline: keep-all, or else the first of its plans that keeps the limits."""

    def solve(case: Case, time_limit_s: float) -> Answer:
        problem = instance_problem(case)
        candidates = (decided_steps(problem, decisions) for decisions in decide(problem))
        for steps in chain([_keep_all_steps(problem)], candidates):
            cost = cost_inside(case, steps)
            if cost is not None:
                return Answer(steps=steps, cost=cost)
        return NO_ANSWER

    return solve


def _cheapest(case: Case, candidates: Iterator[tuple[Step, ...]] | list[tuple[Step, ...]]) -> Answer:
    priced = [(cost, steps) for steps in candidates if (cost := cost_inside(case, steps)) is not None]
    if not priced:
        return NO_ANSWER
    cost, steps = min(priced, key=lambda pair: pair[0])
    return Answer(steps=steps, cost=cost)


def _known(case: Case, problem: Problem) -> Iterator[tuple[Step, ...]]:
    """Keep-all, and what the quick policies find; when joules count, for joules and for the deadline."""
    yield _keep_all_steps(problem)
    if case.minimize == "joules":
        yield from quick_plans(priced(problem, ENERGY), case.memory_bytes)
    if case.minimize == "seconds" or case.deadline_s is not None:
        yield from quick_plans(problem, case.memory_bytes)


def _keep_all_steps(problem: Problem) -> tuple[Step, ...]:
    last_touch = [max((*uses, producer)) for uses, producer in zip(problem.uses, problem.producer, strict=True)]
    steps: list[Step] = []
    for op, name in enumerate(problem.op_names):
        steps.append(Compute(name))
        touched = (*problem.reads[op], *problem.writes[op])
        steps += [Free(problem.tensor_names[t]) for t in touched if last_touch[t] == op]
    return tuple(steps)


INSTANCE_SOLVERS: Mapping[str, InstanceSolver] = {
    "milp": _milp,
    "checkmate": _checkmate,
    "poet": _poet,
    "greedy": _greedy,
    "keep-all": _keep_all,
    "sqrt-n": _decided(sqrt_n),
    "swap-all": _decided(swap_all),
    "capuchin": _decided(capuchin),
}
