"""Makes a valid plan cheaper inside the same limit: keeps what fits, drops what nobody reads, moves transfers.

A plan is turned into actions (everything but `Free`), each with the stays it begins. A stay then lasts until the
last action that needs it before the next one begins, and the `Free`s follow from that: every rewrite below stays valid
by construction, and tensors never stay longer than needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step, paged_tensors
from edgetrain.planner.solvers.problem import Problem

_MAX_PASSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Action:
    step: Compute | PageOut | PageIn
    begins: frozenset[int]  # tensors that come into memory here, whether or not anybody reads them
    needs: tuple[int, ...]  # tensors that must be in memory here
    dirties: tuple[int, ...] = ()  # stored tensors that change here
    is_first_run: bool = False
    scratch_bytes: int = 0
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Span:
    """A tensor's stay: the action that begins it, and the last that needs it."""

    tensor: int
    begin: int
    last_need: int


@dataclass(slots=True, kw_only=True)
class _Occupancy:
    spans: list[_Span] = field(default_factory=list)
    bytes_at: npt.NDArray[np.int64]  # by action


def refine(problem: Problem, steps: Sequence[Step], limit_bytes: int) -> tuple[Step, ...]:
    """A plan with the same limit that is at least as cheap. `steps` must be valid and inside the limit."""
    footprint = _footprints(problem, steps)
    actions = _remove_unread(_actions_of(problem, steps))
    for _ in range(_MAX_PASSES):
        kept, filled = _fill_gaps(problem, actions, footprint, limit_bytes)
        actions = _remove_unread(kept)
        if not filled:
            break
    if problem.transfers is not None:
        actions = _write_early(actions)
        actions = _read_early(problem, actions, footprint, limit_bytes)
    return tuple(_steps_of(problem, actions, footprint))


def _footprints(problem: Problem, steps: Sequence[Step]) -> list[int]:
    paged = paged_tensors(steps)
    return [
        paged_bytes if name in paged else plain_bytes
        for name, plain_bytes, paged_bytes in zip(
            problem.tensor_names, problem.plain_bytes, problem.paged_bytes, strict=True
        )
    ]


def _actions_of(problem: Problem, steps: Sequence[Step]) -> list[_Action]:
    op_number = {name: index for index, name in enumerate(problem.op_names)}
    tensor_number = {name: index for index, name in enumerate(problem.tensor_names)}
    in_memory: set[int] = set()
    has_run: set[int] = set()
    actions: list[_Action] = []
    for step in steps:
        match step:
            case Compute(name):
                op = op_number[name]
                action = _Action(
                    step=step,
                    begins=frozenset(problem.writes[op]) - in_memory,
                    needs=problem.reads[op],
                    dirties=problem.dirties[op],
                    is_first_run=op not in has_run,
                    scratch_bytes=problem.scratch_bytes[op],
                    seconds=problem.seconds[op],
                )
                has_run.add(op)
                in_memory |= action.begins
                actions.append(action)
            case Free(name):
                in_memory.discard(tensor_number[name])
            case PageIn(name):
                in_memory.add(tensor_number[name])
                actions.append(_Action(step=step, begins=frozenset({tensor_number[name]}), needs=()))
            case PageOut(name):
                actions.append(_Action(step=step, begins=frozenset(), needs=(tensor_number[name],)))
    return actions


def _remove_unread(actions: Sequence[_Action]) -> list[_Action]:
    """Removes second runs and page-ins whose tensors nobody reads, and page-outs that are never read back.

    The last value of a stored tensor is read back after the function: its last write stays.
    """
    read_later: set[int] = set()
    paged_in_later = {tensor for action in actions for tensor in action.dirties}
    kept: list[_Action] = []
    for action in reversed(actions):
        useful = action.begins if action.is_first_run else action.begins & read_later
        read_later -= action.begins
        match action.step:
            case Compute():
                if not useful and not action.is_first_run:
                    continue
            case PageIn():
                if not useful:
                    continue
                paged_in_later |= useful
            case PageOut():
                if not paged_in_later.intersection(action.needs):
                    continue
                paged_in_later.difference_update(action.needs)
        read_later.update(action.needs)
        paged_in_later.difference_update(action.dirties)  # what is written before this is out of date then
        kept.append(action)
    return kept[::-1]


def _occupancy(actions: Sequence[_Action], footprint: Sequence[int]) -> _Occupancy:
    current: dict[int, _Span] = {}
    spans: list[_Span] = []
    for index, action in enumerate(actions):
        for tensor in action.needs:
            current[tensor].last_need = index
        for tensor in sorted(action.begins):
            current[tensor] = _Span(tensor=tensor, begin=index, last_need=index)
            spans.append(current[tensor])
    change = np.zeros(len(actions) + 1, dtype=np.int64)
    for span in spans:
        change[span.begin] += footprint[span.tensor]
        change[span.last_need + 1] -= footprint[span.tensor]
    scratch = np.array([action.scratch_bytes for action in actions], dtype=np.int64)
    return _Occupancy(spans=spans, bytes_at=np.cumsum(change)[:-1] + scratch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """A tensor is away from action `start` up to, not including, action `end`, which brings it back."""

    tensor: int
    start: int
    end: int


def _gaps(spans: Sequence[_Span]) -> list[_Gap]:
    """The gaps before each stay in which the tensor is read; a stay nobody reads is no reason to have waited."""
    previous: dict[int, _Span] = {}
    gaps: list[_Gap] = []
    for span in spans:
        if span.tensor in previous and span.last_need > span.begin:
            gaps.append(_Gap(tensor=span.tensor, start=previous[span.tensor].last_need + 1, end=span.begin))
        previous[span.tensor] = span
    return gaps


def _first_reads(problem: Problem, spans: Sequence[_Span]) -> list[_Gap]:
    """The time before each stored tensor's first stay: it can be read from the beginning on."""
    first: dict[int, _Gap] = {}
    for span in spans:
        if problem.is_stored(span.tensor) and span.tensor not in first:
            first[span.tensor] = _Gap(tensor=span.tensor, start=0, end=span.begin)
    return list(first.values())


def _fill_gaps(
    problem: Problem, actions: Sequence[_Action], footprint: Sequence[int], limit_bytes: int
) -> tuple[list[_Action], int]:
    """Keeps tensors across gaps where that spares an action and fits, dearest per byte and action first.

    Also returns how many actions are spared; `_remove_unread` then removes them.
    """
    occupancy = _occupancy(actions, footprint)
    bytes_at = occupancy.bytes_at
    by_end: dict[int, list[_Gap]] = {}
    for gap in _gaps(occupancy.spans):
        by_end.setdefault(gap.end, []).append(gap)

    def worth(end: int) -> float:
        byte_actions = sum(footprint[gap.tensor] * (gap.end - gap.start + 1) for gap in by_end[end])
        return _seconds_spared(problem, actions[end]) / max(1, byte_actions)

    filled: dict[int, frozenset[int]] = {}
    for end in sorted(by_end, key=lambda end: (-worth(end), end)):
        for gap in by_end[end]:
            bytes_at[gap.start : end] += footprint[gap.tensor]
        start = min(gap.start for gap in by_end[end])
        if bytes_at[start:end].max(initial=0) <= limit_bytes:
            filled[end] = frozenset(gap.tensor for gap in by_end[end])
            continue
        for gap in by_end[end]:
            bytes_at[gap.start : end] -= footprint[gap.tensor]
    kept = [
        replace(action, begins=action.begins - filled[index]) if index in filled else action
        for index, action in enumerate(actions)
    ]
    return kept, len(filled)


def _seconds_spared(problem: Problem, action: _Action) -> float:
    if isinstance(action.step, PageIn) and problem.transfers is not None:
        return sum(problem.transfers.read_seconds[tensor] for tensor in action.begins)
    return action.seconds


def _write_early(actions: Sequence[_Action]) -> list[_Action]:
    """Moves each page-out to right behind the action that made the value: the write then hides behind computing."""
    moved: dict[int, list[_Action]] = {}
    begun_at: dict[int, int] = {}
    rest: list[tuple[int, _Action]] = []
    for index, action in enumerate(actions):
        if isinstance(action.step, PageOut):
            moved.setdefault(begun_at[action.needs[0]], []).append(action)
            continue
        rest.append((index, action))
        begun_at.update(dict.fromkeys((*action.begins, *action.dirties), index))
    return [item for index, action in rest for item in (action, *moved.get(index, ()))]


def _read_early(
    problem: Problem, actions: Sequence[_Action], footprint: Sequence[int], limit_bytes: int
) -> list[_Action]:
    """Moves each page-in forward, as far as memory allows and until computing covers the read."""
    transfers = problem.transfers
    assert transfers is not None
    occupancy = _occupancy(actions, footprint)
    bytes_at = occupancy.bytes_at
    goes_before: dict[int, list[_Action]] = {}
    moved: set[int] = set()
    for gap in (*_first_reads(problem, occupancy.spans), *_gaps(occupancy.spans)):
        if not isinstance(actions[gap.end].step, PageIn):
            continue
        nbytes = footprint[gap.tensor]
        uncovered_s, place = transfers.read_seconds[gap.tensor], gap.end
        while place > gap.start and uncovered_s > 0 and bytes_at[place - 1] + nbytes <= limit_bytes:
            place -= 1
            uncovered_s -= actions[place].seconds
        if place < gap.end:
            bytes_at[place : gap.end] += nbytes
            goes_before.setdefault(place, []).append(actions[gap.end])
            moved.add(gap.end)
    return [
        item
        for index, action in enumerate(actions)
        for item in (*goes_before.get(index, ()), *(() if index in moved else (action,)))
    ]


def _steps_of(problem: Problem, actions: Sequence[_Action], footprint: Sequence[int]) -> Iterator[Step]:
    ends: dict[int, list[int]] = {}
    for span in _occupancy(actions, footprint).spans:
        ends.setdefault(span.last_need, []).append(span.tensor)
    for index, action in enumerate(actions):
        yield action.step
        for tensor in ends.get(index, ()):
            yield Free(problem.tensor_names[tensor])
