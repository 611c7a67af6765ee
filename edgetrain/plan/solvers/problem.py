"""One function of a graph as integers: what solvers walk over thousands of times.

Temporaries and ops are numbered; an op's number is its position in the function's own order, which solvers keep:
they only insert recomputations and transfers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgetrain.cost.analytic import OpCost, StorageCost
from edgetrain.graph.ir import Op, TrainGraph
from edgetrain.plan.schedule import footprint_bytes

NEVER = 1 << 60  # a position after every op


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`reads`, `writes` and the rest hold temporaries only; persistent tensors show up in `recompute_until`."""

    op_names: tuple[str, ...]
    reads: tuple[tuple[int, ...], ...]  # by op, without repetition
    writes: tuple[tuple[int, ...], ...]  # by op
    scratch_bytes: tuple[int, ...]  # by op, aligned
    seconds: tuple[float, ...]  # by op
    tensor_names: tuple[str, ...]
    nbytes: tuple[int, ...]  # by tensor, not aligned
    producer: tuple[int, ...]  # by tensor
    uses: tuple[tuple[int, ...], ...]  # by tensor: the ops that read it, ascending
    recompute_until: tuple[int, ...]  # by tensor, see `_recompute_until`
    storage: StorageCost | None


def make_problem(graph: TrainGraph, function: str, costs: Mapping[str, OpCost], storage: StorageCost | None) -> Problem:
    ops = graph.functions[function]
    tensors = graph.temporaries(function)
    number = {tensor.name: index for index, tensor in enumerate(tensors)}
    reads = tuple(tuple(number[n] for n in dict.fromkeys(op.reads) if n in number) for op in ops)
    writes = tuple(tuple(number[n] for n in dict.fromkeys(op.writes) if n in number) for op in ops)
    producer = [0] * len(tensors)
    uses: list[list[int]] = [[] for _ in tensors]
    for position in range(len(ops)):
        for tensor in writes[position]:
            producer[tensor] = position
        for tensor in reads[position]:
            uses[tensor].append(position)
    return Problem(
        op_names=tuple(op.name for op in ops),
        reads=reads,
        writes=writes,
        scratch_bytes=tuple(sum(footprint_bytes(n, paged=False) for n in op.scratch_bytes) for op in ops),
        seconds=tuple(float(costs[op.name].seconds) for op in ops),
        tensor_names=tuple(tensor.name for tensor in tensors),
        nbytes=tuple(tensor.nbytes for tensor in tensors),
        producer=tuple(producer),
        uses=tuple(tuple(positions) for positions in uses),
        recompute_until=_recompute_until(op_deadlines(graph, ops), reads, producer, uses),
        storage=storage,
    )


def op_deadlines(graph: TrainGraph, ops: tuple[Op, ...]) -> tuple[int, ...]:
    """For each op, the last position before which it may run again and read the same persistent values.

    -1 for ops that write persistent tensors: they run once.
    """
    writers: dict[str, list[int]] = {}
    for position, op in enumerate(ops):
        for name in op.writes:
            if not graph.tensors[name].is_temporary:
                writers.setdefault(name, []).append(position)
    deadlines: list[int] = []
    for position, op in enumerate(ops):
        if any(name in writers for name in op.writes):
            deadlines.append(-1)
            continue
        later = [w for name in op.reads for w in writers.get(name, ()) if w > position]
        deadlines.append(min(later, default=NEVER))
    return tuple(deadlines)


def _recompute_until(
    deadlines: tuple[int, ...],
    reads: tuple[tuple[int, ...], ...],
    producer: list[int],
    uses: list[list[int]],
) -> tuple[int, ...]:
    """For each tensor, the last op before which it can be recomputed, whatever else was dropped by then.

    Its producer must read the same persistent values, and each temporary the producer reads must be recomputable
    by then too, or have a use that late: a tensor whose next use comes after its own limit is never dropped, so it
    is in memory or in storage then. A solver that drops a tensor only when `next use <= recompute_until` therefore
    never paints itself into a corner.
    """
    until: list[int] = []
    for position in producer:  # sources come first: tensors are numbered as they are made
        limit = deadlines[position]
        for source in reads[position]:
            last_use = uses[source][-1]  # not empty: this producer reads it
            limit = min(limit, max(until[source], last_use))
        until.append(limit)
    return tuple(until)
