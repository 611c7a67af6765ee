"""Schedules from like kernels: who may lend one, and whose is taken when nothing may be tried.

Lenders are ranked by how alike the kernel is (the same one, its class, its family), how far the shape and the target
are, and how much the schedule brought where it was found. What is lent is refitted and checked by whoever applies it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgetrain_tuner.cache.entry import Entry, Target, Workload
from edgetrain_tuner.schedule import RULES_VERSION, Schedule

SAME, CLASS, FAMILY = "same", "class", "family"
# Untried, a schedule must promise this much where it was measured on the same kernel, and more on a near one.
LEAST_SPEEDUP: Mapping[str, float] = {SAME: 1.03, CLASS: 1.08}
FARTHEST_UNTRIED = 2.0  # doublings of the sizes, all axes together
LARGEST_ERROR = 1e-4
FASTER = "faster"


class Lending(Protocol):
    """An entry and the level of the cache that has it."""

    @property
    def entry(self) -> Entry: ...

    @property
    def level(self) -> str: ...


class Lenders(Protocol):
    """A cache's levels together."""

    def lookup(self, class_: str, target: Target) -> Sequence[Lending]: ...

    def by_family(self, family: str) -> Sequence[Lending]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Donor:
    schedule: Schedule
    likeness: str  # SAME, CLASS or FAMILY
    shape_distance: float
    target_distance: tuple[int, ...]
    speedup: float
    is_faster: bool  # than the default, all things considered: one that lost in a real step is not
    level: str
    id: str

    @property
    def is_known(self) -> bool:
        """Whether it was found for this very kernel on this very target."""
        return self.likeness == SAME and not any(self.target_distance)

    @property
    def rank(self) -> tuple[object, ...]:
        likeness = (SAME, CLASS, FAMILY).index(self.likeness)
        return (likeness, round(self.shape_distance), self.target_distance, -self.speedup, self.shape_distance, self.id)


def shape_distance(one: Workload, other: Workload) -> float:
    """Doublings from one's sizes to the other's, all axes together; by their work where the axes differ in number."""
    if len(one.dims) != len(other.dims):
        return abs(math.log2((one.operations + 1) / (other.operations + 1)))
    return sum(abs(math.log2(a / b)) for a, b in zip(one.dims, other.dims, strict=True))


def is_same(one: Workload, other: Workload) -> bool:
    """Whether both are the same kernel, whatever they are called."""
    return _identity(one) == _identity(other)


def _identity(workload: Workload) -> tuple[object, ...]:
    return (workload.class_, workload.dims, workload.dtype, workload.operations, workload.bytes)


def donors(workload: Workload, target: Target, lenders: Lenders, *, most: int) -> list[Donor]:
    """The most promising lenders, each schedule once; what was not faster anywhere lends nothing."""
    found: dict[Schedule, Donor] = {}
    for lending in (*lenders.lookup(workload.class_, target), *lenders.by_family(workload.family)):
        donor = _donor(workload, target, lending)
        if donor is None or not donor.is_faster:
            continue
        known = found.get(donor.schedule)
        if known is None or donor.rank < known.rank:
            found[donor.schedule] = donor
    return sorted(found.values(), key=lambda donor: donor.rank)[:most]


def tried(workload: Workload, target: Target, lenders: Lenders) -> frozenset[Schedule]:
    """What was measured on this very kernel and target, and was no better than the default, or failed."""
    found = (_donor(workload, target, lending) for lending in lenders.lookup(workload.class_, target))
    return frozenset(donor.schedule for donor in found if donor and donor.is_known and not donor.is_faster)


def choose(workload: Workload, target: Target, lenders: Lenders) -> Donor | None:
    """The schedule to use with no trial at all, or None for the rule's own.

    The same kernel on the same target counts as known: its best where that is faster by a margin, else the rule's. A
    near kernel lends where class, registers and cores are the same and the shape is close.
    """
    found = [
        donor
        for lending in lenders.lookup(workload.class_, target)
        if (donor := _donor(workload, target, lending)) is not None and _is_sound(lending.entry)
    ]
    known = [donor for donor in found if donor.is_known]
    if known:
        good = [donor for donor in known if donor.is_faster and donor.speedup >= LEAST_SPEEDUP[SAME]]
        return max(good, key=lambda donor: (donor.speedup, donor.id), default=None)
    near = [
        donor
        for donor in found
        if donor.is_faster
        and donor.speedup >= LEAST_SPEEDUP[CLASS]
        and donor.shape_distance <= FARTHEST_UNTRIED
        and _is_near(donor.target_distance)
    ]
    return min(near, key=lambda donor: donor.rank, default=None)


def _is_near(distance: tuple[int, ...]) -> bool:
    """The same instruction set, registers and cores; another chip or another cache is near."""
    isa, vector_bits, vector_registers, _cpu, _cache, cores = distance
    return not any((isa, vector_bits, vector_registers, cores))


def _is_sound(entry: Entry) -> bool:
    return entry.check.largest_error <= LARGEST_ERROR


def _donor(workload: Workload, target: Target, lending: Lending) -> Donor | None:
    entry = lending.entry
    parameters = getattr(entry.schedule, "parameters", None)
    if entry.versions.rules != RULES_VERSION or parameters is None or entry.workload.dtype != workload.dtype:
        return None
    likeness = SAME if is_same(workload, entry.workload) else CLASS
    return Donor(
        schedule=Schedule(entry.schedule.rule, dict(parameters)),
        likeness=likeness if entry.workload.class_ == workload.class_ else FAMILY,
        shape_distance=shape_distance(workload, entry.workload),
        target_distance=entry.target.distance(target),
        speedup=entry.speedup or 0.0,
        is_faster=entry.outcome == FASTER,
        level=lending.level,
        id=entry.id,
    )
