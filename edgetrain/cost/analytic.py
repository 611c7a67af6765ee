"""Costs from a device profile alone: a roofline, before anything was compiled or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgetrain.graph.ir import TrainGraph
from edgetrain.targets.device import Rates, Storage
from edgetrain.units import Joules, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """What running an op once costs."""

    seconds: Seconds
    joules: Joules


def call_seconds(rates: Rates, flops: int, moved_bytes: int) -> Seconds:
    """Of one kernel call: the slower of arithmetic and memory traffic, plus the launch."""
    return Seconds(max(flops / rates.flops_per_s, moved_bytes / rates.memory_bytes_per_s) + rates.launch_s)


def read_cost(storage: Storage, nbytes: int) -> OpCost:
    """What bringing a tensor back from storage costs."""
    return OpCost(
        seconds=Seconds(storage.latency_s + nbytes / storage.read_bytes_per_s),
        joules=Joules(nbytes * storage.joules_per_byte_read),
    )


def write_cost(storage: Storage, nbytes: int) -> OpCost:
    """What moving a tensor to storage costs."""
    return OpCost(
        seconds=Seconds(storage.latency_s + nbytes / storage.write_bytes_per_s),
        joules=Joules(nbytes * storage.joules_per_byte_written),
    )


def analytic_costs(graph: TrainGraph, function: str, rates: Rates) -> Mapping[str, OpCost]:
    """The cost of every op of one function, by op name.

    Time is the slower of arithmetic and memory traffic, plus the launch; energy pays for both, for they do not hide
    behind each other.
    """
    costs: dict[str, OpCost] = {}
    for op in graph.functions[function]:
        moved_bytes = graph.bytes_moved(op)
        costs[op.name] = OpCost(
            seconds=call_seconds(rates, op.flops, moved_bytes),
            joules=Joules(op.flops * rates.joules_per_flop + moved_bytes * rates.joules_per_byte),
        )
    return costs


def analytic_costs_by_function(graph: TrainGraph, rates: Rates) -> Mapping[str, Mapping[str, OpCost]]:
    """`analytic_costs` of every function: what the planner takes."""
    return {function: analytic_costs(graph, function, rates) for function in graph.functions}
