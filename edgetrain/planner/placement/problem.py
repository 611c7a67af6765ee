"""A training step on two devices with memories of their own, and `replay`, which believes no solver.

XEngine's question (Schuler et al., arXiv:2212.09290): each op runs on either device, at that device's price; what it
reads must be in that device's memory; tensors are copied between the two, dropped, and computed again on either. One op
or copy at a time, as a chain of dependences leaves little else; op i makes tensor i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgetrain.errors import InternalError
from edgetrain.planner.references.instance_file import Objective
from edgetrain.units import Bytes

DEVICES = (0, 1)


@dataclass(frozen=True, slots=True)
class Run:
    op: int
    device: int


@dataclass(frozen=True, slots=True)
class Copy:
    """To `device` from the other one, which keeps its own."""

    tensor: int
    device: int


@dataclass(frozen=True, slots=True)
class Drop:
    tensor: int
    device: int


PlacedStep = Run | Copy | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOp:
    """`seconds` and `joules` by device; None where the op cannot run there."""

    name: str
    reads: tuple[int, ...]
    output_bytes: Bytes
    seconds: tuple[float | None, float | None]
    joules: tuple[float | None, float | None]

    def runs_on(self, device: int) -> bool:
        return self.seconds[device] is not None and self.joules[device] is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementProblem:
    """Ops in an order that is valid as it stands; `memory_bytes` by device."""

    name: str
    ops: tuple[PlacedOp, ...]
    memory_bytes: tuple[Bytes, Bytes]
    copy_seconds_per_byte: float
    copy_joules_per_byte: float
    minimize: Objective = "seconds"

    def run_cost(self, op: int, device: int) -> float:
        """In the unit that is minimised. The op must be one that runs on the device."""
        prices = self.ops[op].seconds if self.minimize == "seconds" else self.ops[op].joules
        price = prices[device]
        if price is None:
            raise InternalError(f"op {op} cannot run on device {device}")
        return price

    def copy_cost(self, tensor: int) -> float:
        rate = self.copy_seconds_per_byte if self.minimize == "seconds" else self.copy_joules_per_byte
        return rate * self.ops[tensor].output_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementReplay:
    peak_bytes: tuple[int, int]
    cost: float
    copies: int
    runs_by_device: tuple[int, int]


def replay_placement(problem: PlacementProblem, steps: Sequence[PlacedStep]) -> PlacementReplay:
    """Walks a plan and adds up. Raises `InternalError` where a step finds something else than it needs.

    Whether the peaks hold the memories is the caller's question.
    """
    here: tuple[set[int], set[int]] = (set(), set())
    peaks, runs = [0, 0], [0, 0]
    done = copies = 0
    cost = 0.0
    for number, step in enumerate(steps):
        match step:
            case Run(op, device):
                _require(op <= done, number, f"op {op} runs before op {done}")
                _require(here[device].issuperset(problem.ops[op].reads), number, f"op {op} misses what it reads")
                here[device].add(op)
                cost += problem.run_cost(op, device)
                runs[device] += 1
                done = max(done, op + 1)
            case Copy(tensor, device):
                _require(tensor in here[1 - device], number, f"tensor {tensor} is not on the other device")
                _require(tensor not in here[device], number, f"tensor {tensor} is on device {device} already")
                here[device].add(tensor)
                cost += problem.copy_cost(tensor)
                copies += 1
            case Drop(tensor, device):
                _require(tensor in here[device], number, f"tensor {tensor} is not on device {device}")
                here[device].discard(tensor)
        for device in DEVICES:
            live = sum(problem.ops[tensor].output_bytes for tensor in here[device])
            peaks[device] = max(peaks[device], live)
    _require(done == len(problem.ops), len(steps), f"op {done} never runs")
    return PlacementReplay(peak_bytes=(peaks[0], peaks[1]), cost=cost, copies=copies, runs_by_device=(runs[0], runs[1]))


def cost_inside(problem: PlacementProblem, steps: Sequence[PlacedStep]) -> float | None:
    """What a plan costs, or None if a memory does not hold it."""
    found = replay_placement(problem, steps)
    fits = all(peak <= limit for peak, limit in zip(found.peak_bytes, problem.memory_bytes, strict=True))
    return found.cost if fits else None


def _require(holds: bool, step: int, problem: str) -> None:
    if not holds:
        raise InternalError(f"invalid placement: step {step}: {problem}")
