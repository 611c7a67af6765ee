"""Small plan instances, made from literals and seeds."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from edgetrain.planner.references.instance_file import Case, Instance, InstanceOp, Objective
from edgetrain.units import Bytes, Joules, Seconds


def instance(sizes: Sequence[int], sources: Sequence[Sequence[int]], costs: Sequence[int] | None = None) -> Instance:
    """Ops that take `costs` seconds and as many joules; writing to storage takes two joules, reading one."""
    costs = costs or [1] * len(sizes)
    ops = tuple(
        InstanceOp(
            name=f"op{number}",
            phase="forward",
            seconds=Seconds(float(cost)),
            joules=Joules(float(cost)),
            output_bytes=Bytes(size),
            page_in_joules=Joules(1.0),
            page_out_joules=Joules(2.0),
        )
        for number, (size, cost) in enumerate(zip(sizes, costs, strict=True))
    )
    return Instance(name="test", ops=ops, sources=tuple(tuple(reads) for reads in sources))


def case(
    of: Instance,
    memory_bytes: int,
    *,
    recompute: bool = True,
    page: bool = False,
    minimize: Objective = "joules",
    deadline_s: float | None = None,
) -> Case:
    return Case(
        instance=of,
        memory_bytes=Bytes(memory_bytes),
        deadline_s=None if deadline_s is None else Seconds(deadline_s),
        allows_recomputing=recompute,
        allows_paging=page,
        minimize=minimize,
    )


def random_case(seed: int) -> Case:
    """Four to seven ops with up to three sources each, and memory from just too little to plenty."""
    rng = random.Random(seed)
    count = rng.randint(4, 7)
    sizes = [rng.randint(1, 8) for _ in range(count)]
    sources = [sorted(rng.sample(range(op), min(op, rng.randint(1, 3)))) for op in range(count)]
    hungriest = max(sizes[op] + sum(sizes[source] for source in sources[op]) for op in range(count))
    recompute, page = rng.choice([(True, True), (True, False), (False, True)])
    return case(
        instance(sizes, sources, [rng.randint(1, 9) for _ in range(count)]),
        rng.randint(hungriest - 1, hungriest + 8),
        recompute=recompute,
        page=page,
    )


def as_text(of: Instance, cases: Sequence[dict[str, object]]) -> str:
    """An instance file."""
    return json.dumps(
        {
            "format": "edgetrain.plan-instance/1",
            "name": of.name,
            "ops": [
                {
                    "name": op.name,
                    "phase": op.phase,
                    "seconds": op.seconds,
                    "joules": op.joules,
                    "output_bytes": op.output_bytes,
                    "page_in_joules": op.page_in_joules,
                    "page_out_joules": op.page_out_joules,
                }
                for op in of.ops
            ],
            "edges": [[source, op] for op, sources in enumerate(of.sources) for source in sources],
            "cases": cases,
        }
    )
