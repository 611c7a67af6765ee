"""Which bytes of the arena are saved, shipped and persistent: the one place that knows the persistent part's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgetrain.errors import InternalError
from edgetrain.graph.ir import Role, Tensor, TrainGraph
from edgetrain.graph.persistent import SAVED_ROLES, SHIPPED_ROLES, layout_persistent
from edgetrain.planner.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaLayout:
    """Ends of the arena's nested ranges, all from byte 0: saved ≤ shipped ≤ persistent ≤ arena.

    Where tensors are stored, `saved_bytes` and `shipped_bytes` are sizes of files only: what they hold is partly in the
    arena, at other offsets, and partly in the page file.
    """

    saved_bytes: int  # parameters and optimizer state: a checkpoint
    shipped_bytes: int  # the same and constants: `parameters.bin`
    persistent_bytes: int
    arena_bytes: int


def file_offsets(graph: TrainGraph, plan: Plan) -> Mapping[str, int]:
    """Where each parameter, state and constant is in `parameters.bin` and, up to `saved_bytes`, in a checkpoint.

    As in the arena where nothing is stored; the same for every plan of the graph where something is.
    """
    return layout_persistent(graph).offsets if plan.stored else plan.persistent_offsets


def arena_layout(graph: TrainGraph, plan: Plan) -> ArenaLayout:
    """The ranges of `plan`'s arena.

    Raises `InternalError` when a persistent tensor has no offset, lies outside the persistent part, overlaps another
    one, or stands before the end of a range it does not belong to (its bytes would be saved or shipped by mistake).
    """
    _check_offsets(tuple(t for t in graph.persistent if t.name not in plan.stored), plan)
    offsets = file_offsets(graph, plan)
    saved_bytes = max(plan.saved_bytes, _end(graph.persistent, offsets, SAVED_ROLES))
    layout = ArenaLayout(
        saved_bytes=saved_bytes,
        shipped_bytes=max(saved_bytes, _end(graph.persistent, offsets, SHIPPED_ROLES)),
        persistent_bytes=plan.persistent_bytes,
        arena_bytes=plan.peak_bytes,
    )
    for tensor in () if plan.stored else graph.persistent:
        offset = plan.persistent_offsets[tensor.name]
        for roles, end in ((SAVED_ROLES, layout.saved_bytes), (SHIPPED_ROLES, layout.shipped_bytes)):
            if tensor.role not in roles and offset < end:
                raise InternalError(
                    f"the {tensor.role} `{tensor.name}` at {offset} stands before the end {end} of others"
                )
    return layout


def _end(tensors: Iterable[Tensor], offsets: Mapping[str, int], roles: frozenset[Role]) -> int:
    return max((offsets[t.name] + t.nbytes for t in tensors if t.role in roles), default=0)


def _check_offsets(tensors: tuple[Tensor, ...], plan: Plan) -> None:
    missing = [t.name for t in tensors if t.name not in plan.persistent_offsets]
    if missing:
        raise InternalError(f"the plan gives no offset to `{missing[0]}`")
    previous_end, previous = 0, "the arena's start"
    for tensor in sorted(tensors, key=lambda t: (plan.persistent_offsets[t.name], t.nbytes)):
        offset = plan.persistent_offsets[tensor.name]
        if offset < previous_end or offset < 0:
            raise InternalError(f"`{tensor.name}` at {offset} overlaps {previous}, which ends at {previous_end}")
        previous_end, previous = offset + tensor.nbytes, f"`{tensor.name}`"
    if previous_end > plan.persistent_bytes or plan.persistent_bytes > plan.peak_bytes:
        raise InternalError(
            f"persistent tensors end at {previous_end}, the persistent part at {plan.persistent_bytes}, "
            f"the arena at {plan.peak_bytes}"
        )
