"""Every op once, every tensor freed after its last read: the fastest plan, and the one with the most memory."""

from __future__ import annotations

from collections.abc import Iterator

from edgetrain.graph.ir import Op, TrainGraph
from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step


def keep_all_steps(graph: TrainGraph, function: str, *, stored: frozenset[str] = frozenset()) -> tuple[Step, ...]:
    """The plan without recomputation; its peak is the least for the function's own order with what is kept.

    Persistent tensors in `stored` come in before their first use, go after their last, and are written where they
    changed.
    """
    ops = graph.functions[function]
    first_touch: dict[str, int] = {}
    last_touch: dict[str, int] = {}
    for position, op in enumerate(ops):
        for name in _moving(graph, op, stored):
            first_touch.setdefault(name, position)
            last_touch[name] = position
    steps: list[Step] = []
    written: set[str] = set()
    for position, op in enumerate(ops):
        touched = tuple(_moving(graph, op, stored))
        steps += [PageIn(name) for name in touched if name in stored and first_touch[name] == position]
        steps.append(Compute(op.name))
        written.update(op.writes)
        going = [name for name in touched if last_touch[name] == position]
        steps += [PageOut(name) for name in going if name in stored and name in written]
        steps += [Free(name) for name in going]
    return tuple(steps)


def _moving(graph: TrainGraph, op: Op, stored: frozenset[str]) -> Iterator[str]:
    """What an op touches that is not in memory throughout, each once."""
    for name in dict.fromkeys((*op.reads, *op.writes)):
        if graph.tensors[name].is_temporary or name in stored:
            yield name
