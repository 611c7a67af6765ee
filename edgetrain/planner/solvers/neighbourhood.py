"""Which part of a large plan to improve next, with the rest of it fixed.

What is kept or recomputed interacts most with its neighbours in the graph, so a neighbourhood is a range of ops: all
decisions about the tensors they make are free, all others stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgetrain.planner.solvers.windowed_model import WindowedModel

_OVERLAP = 2  # each op is in this many ranges of a sweep


def sweep(model: WindowedModel, binaries: int) -> Iterator[frozenset[str]]:
    """Sets of variables to free, each of about so many binaries, which together cover all of them."""
    by_op = _binaries_by_op(model)
    low = 0
    while low < len(by_op):
        high, count = low, 0
        while high < len(by_op) and (count < binaries or high == low):
            count += len(by_op[high])
            high += 1
        if count:
            yield frozenset(name for names in by_op[low:high] for name in names)
        if high == len(by_op):
            return
        low += max(1, (high - low) // _OVERLAP)


def fixed_outside(values: Mapping[str, float], free: frozenset[str]) -> Mapping[str, float]:
    """The binaries of a plan without those that are free, as the solver's `fixed`."""
    return {name: float(round(value)) for name, value in values.items() if name not in free}


def _binaries_by_op(model: WindowedModel) -> list[list[str]]:
    """The decisions about each op: its second runs, and where its outputs are kept."""
    names: list[list[str]] = [[] for _ in model.problem.op_names]
    for slot, run in zip(model.timeline, model.runs, strict=True):
        if not slot.is_first:
            names[slot.op].append(run.name)
    for (tensor, _), keep in model.keeps.items():
        stored = model.problem.is_stored(tensor)
        names[model.problem.uses[tensor][0] if stored else model.problem.producer[tensor]].append(keep.name)
    return names
