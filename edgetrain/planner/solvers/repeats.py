"""Finds repeated blocks of a network, so that equal decisions of the integer program can share one variable.

Two ops are of one kind if they and their neighbours look alike: the same number of operands, of the same sizes, made
and read by ops of one kind, within a few hops. A network of equal layers has as many ops of each kind as it has
layers. A decision belongs to two ops, such as "run this convolution again before that gradient". Two decisions are
equal if their ops have the same kinds and the same distance, counted in ops of their kind; forward and backward count
in opposite directions.

Decisions that share a variable need not be equal: the solution stays valid, and only loses the choice to differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgetrain.planner.solvers.problem import Problem
from edgetrain.planner.solvers.timeline import Slot

_HOPS = 2  # how far the surroundings of an op reach that must look alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """By op: its kind, and how many ops of that kind come before it."""

    kinds: tuple[int, ...]
    ranks: tuple[int, ...]


def find_repeats(problem: Problem) -> Repeats:
    """Kinds by the colours of ops, refined by their neighbours' colours as often as the surroundings reach."""
    count = len(problem.op_names)
    sizes = problem.plain_bytes
    colours = _numbered(
        (
            tuple(sizes[t] for t in problem.reads[op]),
            tuple(sizes[t] for t in problem.writes[op]),
            problem.scratch_bytes[op],
            problem.rerun_until[op] < 0,
        )
        for op in range(count)
    )
    for _ in range(_HOPS):
        colours = _numbered(
            (
                colours[op],
                tuple(colours[problem.producer[t]] if not problem.is_stored(t) else -1 for t in problem.reads[op]),
                tuple(tuple(colours[use] for use in problem.uses[t]) for t in problem.writes[op]),
            )
            for op in range(count)
        )
    seen: dict[int, int] = {}
    ranks: list[int] = []
    for kind in colours:
        ranks.append(seen.get(kind, 0))
        seen[kind] = ranks[-1] + 1
    return Repeats(kinds=tuple(colours), ranks=tuple(ranks))


def _numbered(colours: Iterable[Hashable]) -> list[int]:
    number: dict[Hashable, int] = {}
    return [number.setdefault(colour, len(number)) for colour in colours]


@dataclass(frozen=True, kw_only=True)
class Twins:
    """For each slot and each tensor at a slot, a key that its twins have as well."""

    by_slot: tuple[Hashable, ...]
    by_touch: Mapping[tuple[int, int], Hashable]  # of tensor and slot


def find_twins(problem: Problem, timeline: Sequence[Slot], touches: Sequence[Sequence[int]]) -> Twins:
    repeats = find_repeats(problem)
    origin = [
        problem.uses[tensor][0] if problem.is_stored(tensor) else problem.producer[tensor]
        for tensor in range(len(problem.tensor_names))
    ]
    pairs = {(slot.op, slot.stage) for slot in timeline}
    pairs |= {(origin[t], timeline[slot].stage) for t, slots in enumerate(touches) for slot in slots}
    place = _places(repeats, pairs)
    passes: dict[tuple[int, int], int] = {}
    by_slot: list[Hashable] = []
    for slot in timeline:
        number = passes[slot.op, slot.stage] = passes.get((slot.op, slot.stage), 0) + 1
        by_slot.append((place[slot.op, slot.stage], number))
    by_touch: dict[tuple[int, int], Hashable] = {}
    for tensor, touching in enumerate(touches):
        output = 0 if problem.is_stored(tensor) else problem.writes[origin[tensor]].index(tensor)
        for number, touch in enumerate(touching):
            following = touching[number + 1] if number + 1 < len(touching) else touch
            by_touch[tensor, touch] = (
                output,
                place[origin[tensor], timeline[touch].stage],
                by_slot[touch],
                place[origin[tensor], timeline[following].stage],
                by_slot[following],
            )
    return Twins(by_slot=tuple(by_slot), by_touch=by_touch)


def _places(repeats: Repeats, pairs: Iterable[tuple[int, int]]) -> Mapping[tuple[int, int], Hashable]:
    """Two ops as their kinds and their distance in ranks; for kinds that count in opposite directions, their sum."""
    by_kinds: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one, other in sorted(pairs):
        by_kinds.setdefault((repeats.kinds[one], repeats.kinds[other]), []).append((one, other))
    place: dict[tuple[int, int], Hashable] = {}
    for kinds, alike in by_kinds.items():
        apart = [repeats.ranks[one] - repeats.ranks[other] for one, other in alike]
        together = [repeats.ranks[one] + repeats.ranks[other] for one, other in alike]
        chosen = apart if len(set(apart)) <= len(set(together)) else together
        place.update({pair: (kinds, distance) for pair, distance in zip(alike, chosen, strict=True)})
    return place
