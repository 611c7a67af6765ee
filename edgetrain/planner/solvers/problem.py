"""One function of a graph as integers: what solvers walk over thousands of times.

Temporaries and ops are numbered; an op's number is its position in the function's own order, which solvers keep:
they only insert recomputations and transfers. Stored persistent tensors are numbered after the temporaries: no op makes
them, they begin in storage, and an op that updates one reads it and leaves it dirty, to be written before it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from edgetrain.cost.analytic import OpCost, read_cost, write_cost
from edgetrain.graph.ir import Op, Tensor, TrainGraph
from edgetrain.planner.plan import PAGE_BYTES, Compute, PageIn, PageOut, Step, footprint_bytes
from edgetrain.targets.device import Storage

NEVER = 1 << 60  # a position after every op
NOBODY = -1  # the producer of a stored tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """What moving each tensor, whole and as large as it lies in memory, to storage and back costs."""

    is_worthwhile: tuple[bool, ...]  # false where page alignment would cost more memory than paging gives back
    read_seconds: tuple[float, ...]
    write_seconds: tuple[float, ...]
    read_joules: tuple[float, ...]
    write_joules: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a function does to its temporaries and stored tensors; other persistent tensors show in `rerun_until` only.

    A stored tensor is in `reads` of every op that touches it, in no op's `writes`, and in `dirties` of the ops that
    change it.
    """

    op_names: tuple[str, ...]
    reads: tuple[tuple[int, ...], ...]  # by op, without repetition
    writes: tuple[tuple[int, ...], ...]  # by op
    scratch_bytes: tuple[int, ...]  # by op, aligned
    seconds: tuple[float, ...]  # by op
    joules: tuple[float, ...]  # by op
    rerun_until: tuple[int, ...]  # by op, see `op_deadlines`
    tensor_names: tuple[str, ...]
    plain_bytes: tuple[int, ...]  # by tensor: what it occupies if it is never paged
    paged_bytes: tuple[int, ...]  # by tensor: what it occupies if it is ever paged
    producer: tuple[int, ...]  # by tensor
    uses: tuple[tuple[int, ...], ...]  # by tensor: the ops that read it, ascending
    recompute_until: tuple[int, ...]  # by tensor, see `recompute_limits`
    transfers: Transfers | None  # None without storage
    dirties: tuple[tuple[int, ...], ...]  # by op: stored tensors that it updates in place

    def is_stored(self, tensor: int) -> bool:
        """Whether it is a persistent tensor that begins and ends in storage."""
        return self.producer[tensor] == NOBODY


def make_problem(
    graph: TrainGraph,
    function: str,
    costs: Mapping[str, OpCost],
    storage: Storage | None,
    *,
    stored: frozenset[str] = frozenset(),
) -> Problem:
    """The function's problem. `stored` names persistent tensors that live in storage; it needs a `storage`."""
    ops = graph.functions[function]
    temporaries = graph.temporaries(function)
    touched = dict.fromkeys(name for op in ops for name in (*op.reads, *op.writes) if name in stored)
    tensors = (*temporaries, *(graph.tensors[name] for name in touched))
    number = {tensor.name: index for index, tensor in enumerate(tensors)}
    made = {tensor.name for tensor in temporaries}
    reads = tuple(
        tuple(
            number[n] for n in dict.fromkeys((*op.reads, *op.writes)) if n in touched or (n in made and n in op.reads)
        )
        for op in ops
    )
    writes = tuple(tuple(number[n] for n in dict.fromkeys(op.writes) if n in made) for op in ops)
    producer, uses = producers_and_uses(reads, writes, len(tensors))
    deadlines = op_deadlines(graph, ops)
    placed_bytes = partial(footprint_bytes, paged=False, alignment_bytes=graph.alignment_bytes)
    return Problem(
        op_names=tuple(op.name for op in ops),
        reads=reads,
        writes=writes,
        scratch_bytes=tuple(sum(map(placed_bytes, op.scratch_bytes)) for op in ops),
        seconds=tuple(float(costs[op.name].seconds) for op in ops),
        joules=tuple(float(costs[op.name].joules) for op in ops),
        rerun_until=deadlines,
        tensor_names=tuple(tensor.name for tensor in tensors),
        plain_bytes=tuple(placed_bytes(tensor.nbytes) for tensor in tensors),
        paged_bytes=tuple(footprint_bytes(tensor.nbytes, paged=True) for tensor in tensors),
        producer=producer,
        uses=uses,
        recompute_until=recompute_limits(deadlines, reads, producer, uses),
        transfers=None if storage is None else _transfers(tensors, storage),
        dirties=tuple(tuple(number[n] for n in dict.fromkeys(op.writes) if n in touched) for op in ops),
    )


def _transfers(tensors: Sequence[Tensor], storage: Storage) -> Transfers:
    sizes = [footprint_bytes(tensor.nbytes, paged=True) for tensor in tensors]
    return Transfers(
        is_worthwhile=tuple(tensor.nbytes >= PAGE_BYTES for tensor in tensors),
        read_seconds=tuple(float(read_cost(storage, size).seconds) for size in sizes),
        write_seconds=tuple(float(write_cost(storage, size).seconds) for size in sizes),
        read_joules=tuple(float(read_cost(storage, size).joules) for size in sizes),
        write_joules=tuple(float(write_cost(storage, size).joules) for size in sizes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What is minimised: so much for each second, and so much for each joule."""

    per_second: float
    per_joule: float

    def cost(self, seconds: float, joules: float) -> float:
        return self.per_second * seconds + self.per_joule * joules


TIME = Weights(per_second=1.0, per_joule=0.0)
ENERGY = Weights(per_second=0.0, per_joule=1.0)


def priced(problem: Problem, weights: Weights) -> Problem:
    """The same problem with what is minimised where seconds are: what saves seconds in it saves that."""
    if weights == TIME:
        return problem

    def mixed(seconds: Sequence[float], joules: Sequence[float]) -> tuple[float, ...]:
        return tuple(weights.cost(s, j) for s, j in zip(seconds, joules, strict=True))

    transfers = problem.transfers
    if transfers is not None:
        transfers = replace(
            transfers,
            read_seconds=mixed(transfers.read_seconds, transfers.read_joules),
            write_seconds=mixed(transfers.write_seconds, transfers.write_joules),
        )
    return replace(problem, seconds=mixed(problem.seconds, problem.joules), transfers=transfers)


def unpaged(problem: Problem) -> Problem:
    """The same problem, paging only what is stored."""
    if problem.transfers is None:
        return problem
    nothing = (False,) * len(problem.tensor_names)
    return replace(problem, transfers=replace(problem.transfers, is_worthwhile=nothing))


def producers_and_uses(
    reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]], tensor_count: int
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """For each tensor, the op that writes it (`NOBODY` for stored ones) and the ops that read it, ascending."""
    producer = [NOBODY] * tensor_count
    uses: list[list[int]] = [[] for _ in range(tensor_count)]
    for position in range(len(reads)):
        for tensor in writes[position]:
            producer[tensor] = position
        for tensor in reads[position]:
            uses[tensor].append(position)
    return tuple(producer), tuple(tuple(positions) for positions in uses)


def largest_op_bytes(problem: Problem) -> int:
    """What the hungriest op needs on its own, operands and scratch: no plan does with less."""
    return max(
        (
            sum(problem.plain_bytes[t] for t in {*reads, *writes}) + scratch
            for reads, writes, scratch in zip(problem.reads, problem.writes, problem.scratch_bytes, strict=True)
        ),
        default=0,
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


def recompute_limits(
    deadlines: tuple[int, ...],
    reads: tuple[tuple[int, ...], ...],
    producer: Sequence[int],
    uses: Sequence[Sequence[int]],
) -> tuple[int, ...]:
    """For each tensor, the last op before which it can be recomputed, whatever else was dropped by then.

    Its producer must read the same persistent values, and each temporary the producer reads must be recomputable
    by then too, or have a use that late: a tensor whose next use comes after its own limit is never dropped, so it
    is in memory or in storage then. A solver that drops a tensor only when `next use <= recompute_until` therefore
    never paints itself into a corner.
    """
    until: list[int] = []
    for position in producer:  # sources come first: tensors are numbered as they are made, stored ones last
        if position == NOBODY:
            until.append(-1)  # never recomputed: storage always has it
            continue
        limit = deadlines[position]
        for source in reads[position]:
            if producer[source] == NOBODY:
                continue  # whether it still has the value is in the deadline already
            last_use = uses[source][-1]  # not empty: this producer reads it
            limit = min(limit, max(until[source], last_use))
        until.append(limit)
    return tuple(until)


def busy_seconds(problem: Problem, steps: Sequence[Step]) -> float:
    """Seconds of computing and of transfers in a plan, as if nothing overlapped."""
    op_number = {name: number for number, name in enumerate(problem.op_names)}
    tensor_number = {name: number for number, name in enumerate(problem.tensor_names)}
    total = 0.0
    for step in steps:
        match step:
            case Compute(op):
                total += problem.seconds[op_number[op]]
            case PageIn(tensor) if problem.transfers is not None:
                total += problem.transfers.read_seconds[tensor_number[tensor]]
            case PageOut(tensor) if problem.transfers is not None:
                total += problem.transfers.write_seconds[tensor_number[tensor]]
    return total
