"""Compares the exact planner with brute force on small random planning problems, and counts the answers that differ.

Used by `benchmarks/planner.py`.
"""

from __future__ import annotations

import random
import time

from benchmarks.random_placements import random_placement
from edgetrain.planner.placement.model import place
from edgetrain.planner.references.brute_force import cheapest
from edgetrain.planner.references.brute_force_placement import cheapest_placement
from edgetrain.planner.references.instance_file import Instance, InstanceOp, instance_problem, replay_instance
from edgetrain.planner.references.solve_instance import Case, solve_instance
from edgetrain.units import Bytes, Joules, Seconds

Row = dict[str, object]


def against_brute_force(count: int) -> Row:
    """Random instances of four to eight ops, with recomputing, paging or both: how many answers differ."""
    differing: list[int] = []
    infeasible = 0
    started_s = time.monotonic()
    for seed in range(count):
        case = _random_case(seed)
        exact = cheapest(instance_problem(case), case.memory_bytes, objective="joules")
        objective = solve_instance(case)["objective"]
        infeasible += exact is None
        wanted = None if exact is None else replay_instance(case, exact).joules
        if (wanted is None) != (objective is None) or (
            wanted is not None and isinstance(objective, float) and abs(wanted - objective) > 1e-9 * wanted
        ):
            differing.append(seed)
    return {
        "instances": count,
        "infeasible": infeasible,
        "differing": differing,
        "seconds": time.monotonic() - started_s,
    }


def _random_case(seed: int) -> Case:
    rng = random.Random(seed)
    count = rng.randint(4, 8)
    ops = tuple(
        InstanceOp(
            name=str(op),
            phase="forward",
            seconds=Seconds(float(rng.randint(1, 9))),
            joules=Joules(float(rng.randint(1, 9))),
            output_bytes=Bytes(rng.randint(1, 8)),
            page_in_joules=Joules(float(rng.randint(1, 4))),
            page_out_joules=Joules(float(rng.randint(1, 4))),
        )
        for op in range(count)
    )
    sources = tuple(tuple(sorted(rng.sample(range(op), min(op, rng.randint(1, 3))))) for op in range(count))
    hungriest = max(ops[op].output_bytes + sum(ops[s].output_bytes for s in sources[op]) for op in range(count))
    recompute, page = rng.choice([(True, True), (True, False), (False, True)])
    return Case(
        instance=Instance(name=f"random {seed}", ops=ops, sources=sources),
        memory_bytes=Bytes(rng.randint(hungriest - 1, hungriest + 8)),
        deadline_s=None,
        allows_recomputing=recompute,
        allows_paging=page,
        minimize="joules",
    )


def placement_against_brute_force(count: int) -> Row:
    """Random instances of three to five ops on two devices: how many answers differ."""
    started_s = time.monotonic()
    differing: list[int] = []
    infeasible = 0
    for seed in range(count):
        problem = random_placement(seed)
        exact, answer = cheapest_placement(problem), place(problem)
        infeasible += exact is None
        if (exact is None) != (answer.cost is None) or (
            exact is not None and answer.cost is not None and abs(exact[0] - answer.cost) > 1e-6 * exact[0]
        ):
            differing.append(seed)
    return {
        "instances": count,
        "infeasible": infeasible,
        "differing": differing,
        "seconds": time.monotonic() - started_s,
    }
