"""Random placement problems that are small enough for brute force."""

from __future__ import annotations

import random

from edgetrain.planner.placement.problem import PlacedOp, PlacementProblem
from edgetrain.units import Bytes


def random_placement(seed: int) -> PlacementProblem:
    """Three to five ops; one device fast and small, the other slow and larger; now and then an op runs on one alone."""
    rng = random.Random(seed)
    count = rng.randint(3, 5)
    ops = []
    for op in range(count):
        slow = float(rng.randint(3, 9))
        fast = None if rng.random() < 0.15 else float(rng.randint(1, 3))
        reads = tuple(sorted(rng.sample(range(op), min(op, rng.randint(1, 2)))))
        ops.append(
            PlacedOp(
                name=str(op),
                reads=reads,
                output_bytes=Bytes(rng.randint(1, 4)),
                seconds=(slow, fast),
                joules=(slow, fast),
            )
        )
    hungriest = max(op.output_bytes + sum(ops[s].output_bytes for s in op.reads) for op in ops)
    return PlacementProblem(
        name=f"random {seed}",
        ops=tuple(ops),
        memory_bytes=(Bytes(hungriest + rng.randint(-1, 3)), Bytes(max(1, hungriest + rng.randint(-4, 1)))),
        copy_seconds_per_byte=rng.choice([0.1, 0.5, 1.0]),
        copy_joules_per_byte=1.0,
    )
