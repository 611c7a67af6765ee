"""Which persistent tensors to leave in storage between their uses, when not all of them fit.

Weights are clean until their update: letting one go costs nothing, bringing it back costs a read, and only the update
costs a write. So what is read seldom and never written goes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgetrain.cost.analytic import OpCost, read_cost, write_cost
from edgetrain.graph.ir import Role, Tensor, TrainGraph
from edgetrain.planner.plan import PAGE_BYTES
from edgetrain.targets.device import Storage

_STORABLE_ROLES = frozenset({Role.PARAMETER, Role.STATE, Role.CONSTANT})
# Of the bytes that can be stored. Few steps, for each is a whole plan; half as much again is near enough.
_SHARES = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)


def storable(graph: TrainGraph) -> frozenset[str]:
    """What may be stored: nothing that the host reads or writes between calls, nothing smaller than a page."""
    return frozenset(t.name for t in _candidates(graph))


def stored_prefixes(
    graph: TrainGraph, costs: Mapping[str, Mapping[str, OpCost]], storage: Storage | None
) -> Iterator[frozenset[str]]:
    """Larger and larger sets of tensors to store, cheapest per byte first, up to everything storable."""
    if storage is None:
        return
    order = sorted(
        _candidates(graph), key=lambda t: (_transfer_seconds(graph, costs, storage, t) / t.nbytes, -t.nbytes)
    )
    total_bytes = sum(tensor.nbytes for tensor in order)
    chosen: set[str] = set()
    chosen_bytes = 0
    remaining = iter(order)
    for share in _SHARES:
        grown = False
        while chosen_bytes < share * total_bytes:
            tensor = next(remaining)
            chosen.add(tensor.name)
            chosen_bytes += tensor.nbytes
            grown = True
        if grown:
            yield frozenset(chosen)


def _candidates(graph: TrainGraph) -> tuple[Tensor, ...]:
    return tuple(t for t in graph.persistent if t.role in _STORABLE_ROLES and t.nbytes >= PAGE_BYTES)


def _transfer_seconds(
    graph: TrainGraph, costs: Mapping[str, Mapping[str, OpCost]], storage: Storage, tensor: Tensor
) -> float:
    """What one call of each function spends on moving the tensor, if every use reads it again."""
    seconds = 0.0
    for function in costs:
        ops = graph.functions[function]
        uses = sum(tensor.name in op.reads or tensor.name in op.writes for op in ops)
        changes = sum(tensor.name in op.writes for op in ops)
        seconds += (
            uses * read_cost(storage, tensor.nbytes).seconds + changes * write_cost(storage, tensor.nbytes).seconds
        )
    return seconds
