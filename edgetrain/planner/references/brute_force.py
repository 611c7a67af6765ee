"""The exact answer for tiny graphs: the reference that other solvers are tested against. Not offered to users.

Shortest path over states (next op, what is in memory, what is in storage). Exponential: seven ops are fine, twenty
are not.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Literal

from edgetrain.cost.analytic import OpCost
from edgetrain.errors import InternalError
from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step
from edgetrain.planner.solvers.problem import Problem, make_problem
from edgetrain.targets.device import Storage

Objective = Literal["seconds", "joules"]

_State = tuple[int, int, int]  # next op, tensors in memory, tensors in storage: sets as bits


def solve_exactly(
    graph: TrainGraph,
    function: str,
    limit_bytes: int,
    costs: Mapping[str, OpCost],
    storage: Storage | None = None,
    *,
    objective: Objective = "seconds",
) -> tuple[Step, ...] | None:
    """The cheapest plan inside the limit that keeps the order of first runs, or None if there is none.

    With storage only joules are minimised: transfers hide behind computing, so seconds do not add up along a path.
    """
    if storage is not None and objective != "joules":
        raise InternalError("brute force with storage can only minimise joules")
    return cheapest(make_problem(graph, function, costs, storage), limit_bytes, objective=objective)


def cheapest(problem: Problem, limit_bytes: int, *, objective: Objective) -> tuple[Step, ...] | None:
    """`solve_exactly` for a problem that is integers already."""
    best: tuple[float, tuple[Step, ...]] | None = None
    for pageable in _pageable_sets(problem):
        search = _Search(
            problem=problem,
            op_costs=problem.seconds if objective == "seconds" else problem.joules,
            footprint=tuple(
                paged if tensor in pageable else plain
                for tensor, (plain, paged) in enumerate(zip(problem.plain_bytes, problem.paged_bytes, strict=True))
            ),
            pageable=pageable,
            limit_bytes=limit_bytes,
        )
        found = search.shortest_path()
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return None if best is None else best[1]


def _pageable_sets(problem: Problem) -> Iterator[frozenset[int]]:
    """Tensors that may be paged. Being pageable costs whole pages, so where that is more, both ways are tried."""
    if problem.transfers is None:
        yield frozenset()
        return
    numbers = range(len(problem.tensor_names))
    dearer = [t for t in numbers if problem.paged_bytes[t] > problem.plain_bytes[t] and not problem.is_stored(t)]
    free = frozenset(numbers).difference(dearer)
    for chosen in chain.from_iterable(combinations(dearer, size) for size in range(len(dearer) + 1)):
        yield free.union(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    problem: Problem
    op_costs: tuple[float, ...]
    footprint: tuple[int, ...]
    pageable: frozenset[int]
    limit_bytes: int

    def shortest_path(self) -> tuple[float, tuple[Step, ...]] | None:
        """Dijkstra's, with what the ops that never ran still cost added to the order: each runs at least once."""
        count = len(self.problem.op_names)
        ahead = [sum(self.op_costs[position:]) for position in range(count + 1)]
        stored = sum(1 << tensor for tensor in self.pageable if self.problem.is_stored(tensor))
        start: _State = (0, 0, stored)
        came_from: dict[_State, tuple[_State, Step]] = {}
        cost_to: dict[_State, float] = {start: 0.0}
        queue: list[tuple[float, float, _State]] = [(ahead[0], 0.0, start)]
        while queue:
            _, cost, state = heapq.heappop(queue)
            if cost > cost_to[state]:
                continue
            if state[0] == count and not stored & ~state[2]:
                return cost, _path(came_from, state)
            for step, price, reached in self._moves(state):
                if cost + price < cost_to.get(reached, float("inf")):
                    cost_to[reached] = cost + price
                    came_from[reached] = (state, step)
                    heapq.heappush(queue, (cost + price + ahead[reached[0]], cost + price, reached))
        return None

    def _moves(self, state: _State) -> Iterator[tuple[Step, float, _State]]:
        position, memory, stored = state
        live_bytes = sum(size for t, size in enumerate(self.footprint) if memory >> t & 1)
        yield from self._computes(state, live_bytes)
        for tensor, name in enumerate(self.problem.tensor_names):
            bit = 1 << tensor
            if memory & bit:
                yield Free(name), 0.0, (position, memory & ~bit, stored)
            transfers = self.problem.transfers
            if transfers is None or tensor not in self.pageable:
                continue
            if memory & bit and not stored & bit:
                yield PageOut(name), transfers.write_joules[tensor], (position, memory, stored | bit)
            if stored & bit and not memory & bit and live_bytes + self.footprint[tensor] <= self.limit_bytes:
                yield PageIn(name), transfers.read_joules[tensor], (position, memory | bit, stored)

    def _computes(self, state: _State, live_bytes: int) -> Iterator[tuple[Step, float, _State]]:
        position, memory, stored = state
        problem = self.problem
        for op in range(min(position + 1, len(problem.op_names))):
            if op < position and self.problem.rerun_until[op] < position:
                continue
            if not all(memory >> t & 1 for t in problem.reads[op]):
                continue
            fresh = [t for t in problem.writes[op] if not memory >> t & 1]
            needed_bytes = live_bytes + sum(self.footprint[t] for t in fresh) + problem.scratch_bytes[op]
            if needed_bytes <= self.limit_bytes:
                stale = sum(1 << t for t in problem.dirties[op])
                reached = (position + (op == position), memory | sum(1 << t for t in fresh), stored & ~stale)
                yield Compute(problem.op_names[op]), self.op_costs[op], reached


def _path(came_from: Mapping[_State, tuple[_State, Step]], state: _State) -> tuple[Step, ...]:
    steps: list[Step] = []
    while state in came_from:
        state, step = came_from[state]
        steps.append(step)
    return tuple(reversed(steps))
