"""The exact knapsack with choices: which items are worth most together within a limit, one of each group. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """At most one item of each group is taken; an empty group is the item's own."""

    name: str
    cost: int  # ≥ 0
    value: float  # ≥ 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class _State:
    """A choice among the groups seen so far; `taken` is a chain of item numbers that states share."""

    cost: int
    value: float
    taken: tuple[int, object] | None


_Gain = tuple[int, float]  # (more cost, more value) of the next better choice of a group


def best_within(items: Sequence[Item], limit: int) -> tuple[str, ...]:
    """Names of the items with the largest total value whose total cost is at most `limit`, in the order given.

    Of two choices of equal value it takes the cheaper one. Exact: states that another one beats in both cost and value
    are dropped (Nemhauser and Ullmann, 1969), and so are those whose fractional bound cannot reach the best known.
    """
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        if item.cost <= limit and item.value > 0:
            groups.setdefault(item.group or f"item {i}", []).append(i)
    gains = {name: _gains([items[i] for i in numbers]) for name, numbers in groups.items()}
    # The group with the best value for its cost first: then the bounds are tight early.
    order = sorted(groups, key=lambda name: (-_density(gains[name][0]), groups[name][0]))
    known = 0.0
    states = [_State(0, 0.0, None)]
    for position, name in enumerate(order):
        grown = [
            _State(s.cost + items[i].cost, s.value + items[i].value, (i, s.taken))
            for i in groups[name]
            for s in states
            if s.cost + items[i].cost <= limit
        ]
        rest = sorted((g for later in order[position + 1 :] for g in gains[later]), key=_density, reverse=True)
        front = _front(states + grown)
        known = max([known, *(_greedy(s, rest, limit) for s in front[-_PROBED:])])
        states = [s for s in front if _bound(s, rest, limit) >= known * (1 - 1e-12)]
    best = max(states, key=lambda s: (s.value, -s.cost))
    taken = set(_chain(best.taken))
    return tuple(item.name for i, item in enumerate(items) if i in taken)


_PROBED = 32  # states whose greedy completion is tried for a better lower bound


def _density(gain: _Gain) -> float:
    return gain[1] / gain[0] if gain[0] else float("inf")


def _gains(choices: Sequence[Item]) -> list[_Gain]:
    """The steps along the upper hull of a group's (cost, value) points: ever less value for the cost."""
    hull: list[_Gain] = [(0, 0.0)]
    for cost, value in sorted({(c.cost, c.value) for c in choices}, key=lambda p: (p[0], -p[1])):
        if value <= hull[-1][1]:
            continue
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], (cost, value)):
            hull.pop()
        hull.append((cost, value))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(hull)]


def _turns_up(a: _Gain, b: _Gain, c: _Gain) -> bool:
    return (b[1] - a[1]) * (c[0] - b[0]) <= (c[1] - b[1]) * (b[0] - a[0])


def _front(states: Sequence[_State]) -> list[_State]:
    """The states that no other one beats, cheapest first."""
    kept: list[_State] = []
    for state in sorted(states, key=lambda s: (s.cost, -s.value)):
        if not kept or state.value > kept[-1].value:
            kept.append(state)
    return kept


def _bound(state: _State, rest: Sequence[_Gain], limit: int) -> float:
    """The most the state can become if gains could be cut: they come best value for cost first."""
    room, value = limit - state.cost, state.value
    for cost, gain in rest:
        if cost > room:
            return value + gain * room / cost
        room -= cost
        value += gain
    return value


def _greedy(state: _State, rest: Sequence[_Gain], limit: int) -> float:
    """What the state certainly can become: gains in order until one does not fit.

    A prefix of the gains holds each group's steps from its first on, so it is a real choice.
    """
    room, value = limit - state.cost, state.value
    for cost, gain in rest:
        if cost > room:
            break
        room -= cost
        value += gain
    return value


def _chain(taken: tuple[int, object] | None) -> list[int]:
    numbers = []
    link: object = taken
    while isinstance(link, tuple):
        numbers.append(link[0])
        link = link[1]
    return numbers
