"""Costs from a device profile alone: a roofline, before anything was compiled or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgetrain.graph.ir import TrainGraph
from edgetrain.units import Joules, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """What running an op once costs."""

    seconds: Seconds
    joules: Joules


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCosts:
    """The numbers of a device profile that the roofline needs. Rates are sustained ones, not the datasheet's peak."""

    flops_per_s: float
    memory_bytes_per_s: float
    launch_s: float
    joules_per_flop: float
    joules_per_byte: float

    def seconds(self, flops: int, moved_bytes: int) -> Seconds:
        """Of one call: the slower of arithmetic and memory traffic, plus the launch."""
        return Seconds(max(flops / self.flops_per_s, moved_bytes / self.memory_bytes_per_s) + self.launch_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCost:
    """What moving a tensor to storage and back costs: its bytes, and `latency_s` for each transfer.

    Where transfers do not overlap, ops wait for each of them.
    """

    read_bytes_per_s: float
    write_bytes_per_s: float
    joules_per_byte_read: float
    joules_per_byte_written: float
    latency_s: float = 0.0
    overlaps: bool = True

    def read(self, nbytes: int) -> OpCost:
        return OpCost(
            seconds=Seconds(self.latency_s + nbytes / self.read_bytes_per_s),
            joules=Joules(nbytes * self.joules_per_byte_read),
        )

    def write(self, nbytes: int) -> OpCost:
        return OpCost(
            seconds=Seconds(self.latency_s + nbytes / self.write_bytes_per_s),
            joules=Joules(nbytes * self.joules_per_byte_written),
        )


def analytic_costs(graph: TrainGraph, function: str, device: DeviceCosts) -> Mapping[str, OpCost]:
    """The cost of every op of one function, by op name.

    Time is the slower of arithmetic and memory traffic, plus the launch; energy pays for both, for they do not hide
    behind each other.
    """
    costs: dict[str, OpCost] = {}
    for op in graph.functions[function]:
        moved_bytes = graph.bytes_moved(op)
        costs[op.name] = OpCost(
            seconds=device.seconds(op.flops, moved_bytes),
            joules=Joules(op.flops * device.joules_per_flop + moved_bytes * device.joules_per_byte),
        )
    return costs


def analytic_costs_by_function(graph: TrainGraph, device: DeviceCosts) -> Mapping[str, Mapping[str, OpCost]]:
    """`analytic_costs` of every function: what the planner takes."""
    return {function: analytic_costs(graph, function, device) for function in graph.functions}
