"""What each kernel of a step costs under a plan: with every recomputation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from edgetrain.cost.analytic import OpCost, read_cost, write_cost
from edgetrain.graph.ir import EVALUATE, STEP, TrainGraph
from edgetrain.planner.make_plan import CostsByFunction
from edgetrain.planner.plan import Compute, PageIn, PageOut, Plan, footprint_bytes
from edgetrain.targets.device import Storage

PAGING = "paging"
_NUMBERED = re.compile(r"(?<=[a-z])\d+$|(?<=\dd)\d+$")  # what tells two kernels of one kind apart: conv2d1, sum2


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """All runs of one kernel, or all transfers, within one training step."""

    name: str  # what a person would call it
    kind: str
    phase: str
    runs: int
    seconds: float
    joules: float


def operations(
    graph: TrainGraph, plan: Plan, costs: CostsByFunction, storage: Storage | None, *, accumulate: int = 1
) -> tuple[Operation, ...]:
    """The kernels of one optimizer step, which reads `accumulate` batches, in their order, then the transfers."""
    found = []
    for function, function_plan in plan.functions.items():
        if function == EVALUATE or function not in graph.functions:
            continue
        times = accumulate if function == STEP else 1
        runs = Counter(step.op for step in function_plan.steps if isinstance(step, Compute))
        for op in graph.functions[function]:
            cost = costs[function][op.name]
            found.append(
                Operation(
                    name=op.source or op.name,
                    kind=kind_of(op.source or op.name),
                    phase=str(op.phase),
                    runs=times * runs[op.name],
                    seconds=times * runs[op.name] * cost.seconds,
                    joules=times * runs[op.name] * cost.joules,
                )
            )
    return (*found, *_transfers(graph, plan, storage, accumulate))


def by_kind(found: Sequence[Operation]) -> tuple[Operation, ...]:
    """One entry for each kind, the one that takes longest first."""
    kinds: dict[str, list[Operation]] = {}
    for operation in found:
        kinds.setdefault(operation.kind, []).append(operation)
    summed = (
        Operation(
            name=kind,
            kind=kind,
            phase=", ".join(dict.fromkeys(each.phase for each in group if each.phase)),
            runs=sum(each.runs for each in group),
            seconds=sum(each.seconds for each in group),
            joules=sum(each.joules for each in group),
        )
        for kind, group in kinds.items()
    )
    return tuple(sorted(summed, key=lambda each: (-each.seconds, each.kind)))


def kind_of(source: str) -> str:
    """`conv2d1_add of conv1.weight` is a `conv2d_add`."""
    parts = (part.partition(" of ")[0] for part in source.split(", "))
    return ", ".join("_".join(_NUMBERED.sub("", word) for word in part.split("_")) for part in parts)


def _transfers(graph: TrainGraph, plan: Plan, storage: Storage | None, accumulate: int) -> tuple[Operation, ...]:
    if storage is None or STEP not in plan.functions:
        return ()
    found = []
    for kind, cost_of, name in ((PageOut, write_cost, "written to storage"), (PageIn, read_cost, "read from storage")):
        costs: list[OpCost] = [
            cost_of(storage, footprint_bytes(graph.tensors[step.tensor].nbytes, paged=True))
            for function, function_plan in plan.functions.items()
            if function != EVALUATE
            for step in function_plan.steps * (accumulate if function == STEP else 1)
            if isinstance(step, kind)
        ]
        if costs:
            found.append(
                Operation(
                    name=name,
                    kind=PAGING,
                    phase="",
                    runs=len(costs),
                    seconds=sum(cost.seconds for cost in costs),
                    joules=sum(cost.joules for cost in costs),
                )
            )
    return tuple(found)
