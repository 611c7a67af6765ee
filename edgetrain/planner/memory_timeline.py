"""Which tensors hold how much memory at every moment of a planned step: the data behind a plan's picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from edgetrain.graph.ir import EVALUATE, Phase, TrainGraph
from edgetrain.graph.persistent import align
from edgetrain.planner.explain import PERSISTENT_LABELS, replay_bytes, temporary_labels
from edgetrain.planner.plan import Compute, Free, FunctionPlan, PageIn, PageOut, Plan, Stay

PAGE_BUFFERS = "page buffers"
PROGRAM = "program"  # code, stacks and buffers beside the arena
# From the bottom of the picture up: what never changes first.
LAYERS = (PROGRAM, *PERSISTENT_LABELS.values(), "activations", "gradients", "scratch", PAGE_BUFFERS)

Kind = Literal["compute", "recompute", "page out", "page in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One kernel call or transfer. `bytes_by_layer` has every layer; they add up to what is in memory meanwhile.

    A tensor that is paged at any time counts as a page buffer whenever it is in memory.
    """

    function: str
    kind: Kind
    name: str  # the op or the tensor
    source: str  # what a person would call it
    phase: Phase | None  # of an op
    bytes_by_layer: Mapping[str, int]

    @property
    def nbytes(self) -> int:
        return sum(self.bytes_by_layer.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline:
    """The moments of the functions that train, and of the one that needs most, in order."""

    moments: tuple[Moment, ...]
    peak: int  # index of the fullest moment
    needed_bytes: int  # with fragmentation
    budget_bytes: int | None


def memory_timeline(graph: TrainGraph, plan: Plan) -> MemoryTimeline:
    """Replays the plan and writes down every moment. Raises `InternalError` if the plan is not of this graph."""
    moments = {name: _moments(graph, plan, function_plan) for name, function_plan in plan.functions.items()}
    fullest = max(moments, key=lambda name: max((moment.nbytes for moment in moments[name]), default=0))
    shown = [m for name, found in moments.items() if name == fullest or name != EVALUATE for m in found]
    return MemoryTimeline(
        moments=tuple(shown),
        peak=max(range(len(shown)), key=lambda index: shown[index].nbytes, default=0),
        needed_bytes=plan.needed_bytes,
        budget_bytes=plan.budget.memory_bytes,
    )


def _moments(graph: TrainGraph, plan: Plan, function_plan: FunctionPlan) -> list[Moment]:
    held = _bytes_by_step(graph, function_plan, replay_bytes(graph, function_plan).stays)
    always = dict.fromkeys(LAYERS, 0) | {PROGRAM: plan.beside_bytes}
    for tensor in graph.persistent:
        if tensor.name not in plan.stored:
            always[PERSISTENT_LABELS[tensor.role]] += align(tensor.nbytes, graph.alignment_bytes)
    makers = {name: op.source or op.name for op in graph.functions[function_plan.function] for name in op.writes}
    moments: list[Moment] = []
    ran: set[str] = set()
    for index, step in enumerate(function_plan.steps):
        if isinstance(step, Free):
            continue
        layers = {layer: always[layer] + held[index].get(layer, 0) for layer in LAYERS}
        moments.append(_moment(graph, function_plan.function, step, layers, ran, makers))
        if isinstance(step, Compute):
            ran.add(step.op)
    return moments


def _bytes_by_step(graph: TrainGraph, function_plan: FunctionPlan, stays: Iterable[Stay]) -> list[dict[str, int]]:
    """For each step of the function, the bytes of temporaries and stored tensors by layer."""
    labels = temporary_labels(graph, function_plan.function)
    held: list[dict[str, int]] = [{} for _ in function_plan.steps]
    for stay in stays:
        layer = PAGE_BUFFERS if stay.paged else labels[stay.tensor]
        for index in range(stay.start, stay.end + 1):
            held[index][layer] = held[index].get(layer, 0) + stay.nbytes
    return held


def _moment(
    graph: TrainGraph,
    function: str,
    step: Compute | PageOut | PageIn,
    layers: Mapping[str, int],
    ran: set[str],
    makers: Mapping[str, str],
) -> Moment:
    match step:
        case Compute(name):
            op = graph.op(function, name)
            kind: Kind = "recompute" if name in ran else "compute"
            return Moment(
                function=function, kind=kind, name=name, source=op.source, phase=op.phase, bytes_by_layer=layers
            )
        case PageOut(name) | PageIn(name):
            return Moment(
                function=function,
                kind="page out" if isinstance(step, PageOut) else "page in",
                name=name,
                source=makers.get(name, "") if graph.tensors[name].is_temporary else name,
                phase=None,
                bytes_by_layer=layers,
            )
