"""Units within rounding of a kink, for which float32 and float64 can both be right and still disagree.

ReLU, Clip and MaxPool have kinks. If the input of a unit is within float32's rounding of a kink, it can fall on either
side, and then its gradient is entirely different, not only rounded differently. If the reference moves that unit to the
other side, both must agree again. This distinguishes such a case from a wrong gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.references.trained import Trained, agrees, assert_agrees, differences

Tensor = Any

# How near a kink counts, relative to the root mean square of the layer's inputs: rounding errors of sums over
# thousands of products in float32 are about 1e-6 of it, and parameters carry those of the steps before.
WITHIN_ROUNDING = 1e-5
MOST_FLIPS = 2
_LOSS_ROUNDING = 5e-6  # the losses of runs on the same side of every kink differ by up to 2e-6


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Unit:
    """One element of one activation in one training step."""

    step: int
    node: str
    index: int  # into the flattened output


@dataclass(kw_only=True)
class KinkWatch:
    """Lists the units that come near a kink, and puts those in `flipped` on the other side of theirs."""

    flipped: frozenset[Unit] = frozenset()
    step: int = 0
    near: dict[Unit, float] = field(default_factory=dict)  # with their distance from the kink

    def chosen(self, node: str, side: Tensor, distance: Tensor, scale: float) -> Tensor:
        """`side`, a boolean for each unit, negated for flipped ones; `distance` is how far each is from its kink."""
        near = (distance.detach().flatten() <= WITHIN_ROUNDING * scale).nonzero().flatten().tolist()
        distances = distance.detach().flatten()[near].tolist()
        for index, value in zip(near, distances, strict=True):
            self.near[Unit(step=self.step, node=node, index=index)] = value / scale
        result = side.clone()
        for unit in self.flipped:
            if (unit.step, unit.node) == (self.step, node):
                result.view(-1)[unit.index] = ~result.view(-1)[unit.index]
        return result


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A reference run, and the units it has on the other side of a kink."""

    expected: Trained
    flipped: frozenset[Unit]
    near: Mapping[Unit, float]


Reference = Callable[[KinkWatch], Trained]


def assert_agrees_up_to_kinks(found: Trained, reference: Reference) -> None:
    """`assert_agrees` with the reference, at most `MOST_FLIPS` units within rounding of a kink on the other side of it.

    Everything else must be within the usual tolerances, after every step: a wrong gradient is not that of one unit.
    """
    assert_agrees(found, nearest_reference(found, reference).expected)


def nearest_reference(found: Trained, reference: Reference) -> Explained:
    """The reference itself if `found` agrees with it, else one with up to `MOST_FLIPS` units on the other side.

    Units are tried one at a time, the nearest to their kinks first, among the steps before the losses part.
    """
    best = _run(reference, frozenset())
    while not agrees(found, best.expected) and len(best.flipped) < MOST_FLIPS:
        nearer = _with_one_more(found, best, reference)
        if nearer is best:
            break
        best = nearer
    return best


def _with_one_more(found: Trained, best: Explained, reference: Reference) -> Explained:
    """The first try that agrees, else the one that is nearest to what was found; `best` where none is nearer."""
    parted = _parting_step(found, best.expected)
    candidates = [unit for unit in best.near if unit.step < parted and unit not in best.flipped]
    least = differences(found, best.expected).update
    begun = best
    for unit in sorted(candidates, key=lambda u: begun.near[u]):
        attempt = _run(reference, begun.flipped | {unit})
        if agrees(found, attempt.expected):
            return attempt
        apart = differences(found, attempt.expected).update
        if apart < least:
            best, least = attempt, apart
    return best


def _parting_step(found: Trained, expected: Trained) -> int:
    """The first step whose losses differ by more than rounding; the number of steps where none does."""
    pairs = zip(found.losses, expected.losses, strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if abs(a - b) > _LOSS_ROUNDING * abs(b)), len(expected.losses))


def _run(reference: Reference, flipped: frozenset[Unit]) -> Explained:
    watch = KinkWatch(flipped=flipped)
    return Explained(expected=reference(watch), flipped=flipped, near=watch.near)
