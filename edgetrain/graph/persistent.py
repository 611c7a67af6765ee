"""Where tensors that live for the whole run are: the order of the arena's persistent part, of `parameters.bin` and of
checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgetrain.graph.ir import Role, TrainGraph

SAVED_ROLES = frozenset({Role.PARAMETER, Role.STATE})  # a checkpoint holds these
SHIPPED_ROLES = SAVED_ROLES | {Role.CONSTANT}  # and `parameters.bin` these


def align(nbytes: int, alignment: int) -> int:
    """The next multiple of `alignment`, `nbytes` itself included."""
    return -(-nbytes // alignment) * alignment


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentLayout:
    """Offsets of the tensors that live for the whole run; [0, saved_bytes) holds parameters and state alone."""

    offsets: Mapping[str, int]
    nbytes: int
    saved_bytes: int


def layout_persistent(graph: TrainGraph, *, stored: frozenset[str] = frozenset()) -> PersistentLayout:
    """Places persistent tensors, but for stored ones, one after another in the graph's order: saved ones first.

    With nothing stored this is also the layout of `parameters.bin` and of checkpoints, whatever the plan.
    """
    offsets: dict[str, int] = {}
    end = saved_bytes = 0
    for tensor in graph.persistent:
        if tensor.name in stored:
            continue
        offsets[tensor.name] = end
        end += align(tensor.nbytes, graph.alignment_bytes)
        if tensor.role in SAVED_ROLES:
            saved_bytes = end
    return PersistentLayout(offsets=offsets, nbytes=end, saved_bytes=saved_bytes)
