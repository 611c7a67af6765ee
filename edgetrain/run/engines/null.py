"""A device that computes nothing: it walks the plan's memory and leaves every number as it was.

Loops, checkpoints, steps and placements can be tried with it anywhere, in milliseconds and without a compiler.
"""

from __future__ import annotations

import math

import numpy as np

from edgetrain.cost.analytic import OpCost
from edgetrain.errors import InternalError
from edgetrain.graph.ir import TrainGraph
from edgetrain.graph.persistent import layout_persistent
from edgetrain.planner.plan import FunctionPlan, Placement, Plan, replay
from edgetrain.run.engines.engine import Array
from edgetrain.targets.device import Storage
from edgetrain.units import Joules, Seconds

# What replay asks the price of costs nothing here: only the memory is of interest.
_FREE = OpCost(seconds=Seconds(0.0), joules=Joules(0.0))
_FREE_STORAGE = Storage(
    read_bytes_per_s=math.inf,
    write_bytes_per_s=math.inf,
    joules_per_byte_read=0.0,
    joules_per_byte_written=0.0,
    latency_s=0.0,
)


class NullEngine:
    """An `Engine` whose memory is the plan's persistent part; temporaries exist as bookkeeping only."""

    def __init__(self, graph: TrainGraph, plan: Plan) -> None:
        self._graph = graph
        self._plan = plan
        # What is stored is in memory here too, in the layout of checkpoints.
        layout = layout_persistent(graph) if plan.stored else None
        self._offsets = plan.persistent_offsets if layout is None else layout.offsets
        self._persistent = np.zeros(plan.persistent_bytes if layout is None else layout.nbytes, dtype=np.uint8)
        self._extent_bytes: dict[str, int] = {}  # by function, for those called so far

    def tensor(self, name: str) -> Array:
        tensor = self._graph.tensors[name]
        offset = self._offsets[name]
        return self._persistent[offset : offset + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)

    def call(self, function: str) -> None:
        """Replays the steps. Raises `InternalError` if they or their placements break the plan's promises."""
        # The steps are the same at every call, so once is enough.
        if function not in self._extent_bytes:
            self._extent_bytes[function] = self._walk(self._plan.functions[function])

    def release(self) -> None:
        """There are no copies."""

    @property
    def saved(self) -> memoryview:
        return self._persistent.data[: self._plan.saved_bytes]

    def measured_peak_bytes(self) -> int:
        return max([self._plan.persistent_bytes, *self._extent_bytes.values()])

    def close(self) -> None:
        """Nothing is held."""

    def _walk(self, function_plan: FunctionPlan) -> int:
        """The end of the highest placement, after every stay was found in its place and none on top of another."""
        costs = {op.name: _FREE for op in self._graph.functions[function_plan.function]}
        stays = replay(self._graph, function_plan.function, function_plan.steps, costs, _FREE_STORAGE).stays
        needed = {(stay.tensor, stay.start, stay.end, stay.nbytes) for stay in stays}
        placed = {(p.tensor, p.start, p.end, p.nbytes) for p in function_plan.placements}
        if needed != placed:
            name, start, *_ = min(needed ^ placed)
            raise InternalError(f"{function_plan.function}: `{name}` is placed otherwise than step {start} needs it")
        _check_apart(function_plan.function, function_plan.placements, self._plan.persistent_bytes)
        return max((p.offset + p.nbytes for p in function_plan.placements), default=0)


def _check_apart(function: str, placements: tuple[Placement, ...], persistent_bytes: int) -> None:
    """Raises `InternalError` where two placements share a byte at one step, or one lies in the persistent part."""
    live: list[Placement] = []
    for new in sorted(placements, key=lambda p: p.start):
        live = [old for old in live if old.end >= new.start]
        for old in live:
            if old.offset < new.offset + new.nbytes and new.offset < old.offset + old.nbytes:
                raise InternalError(f"{function}: `{new.tensor}` lies on `{old.tensor}` at step {new.start}")
        if new.offset < persistent_bytes:
            raise InternalError(f"{function}: `{new.tensor}` lies on the persistent tensors at step {new.start}")
        live.append(new)
