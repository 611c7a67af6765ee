"""The exact placement for tiny graphs: the reference that the program is tested against. Not offered to users.

Shortest path over states (next op, what is in each memory). Exponential: five ops are fine, ten are not.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from edgetrain.planner.placement.problem import DEVICES, Copy, Drop, PlacedStep, PlacementProblem, Run

_State = tuple[int, tuple[frozenset[int], frozenset[int]]]


def cheapest_placement(problem: PlacementProblem) -> tuple[float, tuple[PlacedStep, ...]] | None:
    """The cheapest plan inside both memories that keeps the order of first runs, or None if there is none."""
    start: _State = (0, (frozenset(), frozenset()))
    cost_to = {start: 0.0}
    came_from: dict[_State, tuple[_State, PlacedStep]] = {}
    queue = [(0.0, 0, start)]
    pushed = 0  # states do not compare; equal costs leave in the order they came
    while queue:
        cost, _, state = heapq.heappop(queue)
        if cost > cost_to[state]:
            continue
        if state[0] == len(problem.ops):
            return cost, _path(came_from, state)
        for step, price, reached in _moves(problem, state):
            if cost + price < cost_to.get(reached, float("inf")):
                cost_to[reached] = cost + price
                came_from[reached] = (state, step)
                pushed += 1
                heapq.heappush(queue, (cost + price, pushed, reached))
    return None


def _moves(problem: PlacementProblem, state: _State) -> Iterator[tuple[PlacedStep, float, _State]]:
    position, memories = state
    for device in DEVICES:
        here = memories[device]
        for op in range(position + 1):
            placed = problem.ops[op]
            if placed.runs_on(device) and here.issuperset(placed.reads) and _fits(problem, here | {op}, device):
                reached = position + (op == position)
                yield Run(op, device), problem.run_cost(op, device), (reached, _with(memories, device, here | {op}))
        for tensor in memories[1 - device] - here:
            if _fits(problem, here | {tensor}, device):
                moved = _with(memories, device, here | {tensor})
                yield Copy(tensor, device), problem.copy_cost(tensor), (position, moved)
        for tensor in here:
            yield Drop(tensor, device), 0.0, (position, _with(memories, device, here - {tensor}))


def _fits(problem: PlacementProblem, tensors: frozenset[int], device: int) -> bool:
    return sum(problem.ops[tensor].output_bytes for tensor in tensors) <= problem.memory_bytes[device]


def _with(
    memories: tuple[frozenset[int], frozenset[int]], device: int, tensors: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    return (tensors, memories[1]) if device == 0 else (memories[0], tensors)


def _path(came_from: dict[_State, tuple[_State, PlacedStep]], state: _State) -> tuple[PlacedStep, ...]:
    steps: list[PlacedStep] = []
    while state in came_from:
        state, step = came_from[state]
        steps.append(step)
    return tuple(reversed(steps))
