"""Schedules from like kernels: who may lend one, what held on a machine, and whose is taken when nothing may be tried.

Lenders are ranked by how alike the kernel is (the same one, its class, its family), how far the shape and the target
are, and how much the schedule brought where it was found. What is lent is refitted and checked by whoever applies it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgetrain_tuner.cache.entry import Entry, Target, Workload
from edgetrain_tuner.cache.levels import SEED
from edgetrain_tuner.schedule import RULES_VERSION, Schedule

SAME, CLASS, FAMILY = "same", "class", "family"
# Untried, a schedule must promise this much where it was measured on the same kernel, and more on a near one.
LEAST_SPEEDUP: Mapping[str, float] = {SAME: 1.03, CLASS: 1.08}
FARTHEST_UNTRIED = 2.0  # doublings of the sizes, all axes together
MOST_UNTRIED = 3  # of one kernel that are tried at a time
LARGEST_ERROR = 1e-4
FASTER, FAILED = "faster", "failed"


class Lending(Protocol):
    """An entry, the level of the cache that has it, and what the user's own store and the seed alone say of it."""

    @property
    def entry(self) -> Entry: ...

    @property
    def level(self) -> str: ...

    @property
    def own(self) -> Entry | None: ...

    @property
    def shipped(self) -> Entry | None: ...


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
    is_shipped: bool = False  # with edgetrain, for this very kernel: taken without a trial, as rules are

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
    return identity(one) == identity(other)


def identity(workload: Workload) -> tuple[object, ...]:
    """What two kernels have in common that are the same."""
    return (workload.class_, workload.dims, workload.dtype, workload.operations, workload.bytes)


def donors(workload: Workload, target: Target, lenders: Lenders, *, most: int) -> list[Donor]:
    """The most promising lenders, each schedule once; what was not faster anywhere lends nothing."""
    found: dict[Schedule, Donor] = {}
    for lending in (*lenders.lookup(workload.class_, target), *lenders.by_family(workload.family)):
        donor = _donor(workload, target, lending.entry, lending.level)
        if donor is None or not donor.is_faster:
            continue
        known = found.get(donor.schedule)
        if known is None or donor.rank < known.rank:
            found[donor.schedule] = donor
    return sorted(found.values(), key=lambda donor: donor.rank)[:most]


def tried(workload: Workload, target: Target, lenders: Lenders) -> frozenset[Schedule]:
    """What was measured on this very kernel and target, and was no better than the default, or failed."""
    found = (_donor(workload, target, one.entry, one.level) for one in lenders.lookup(workload.class_, target))
    return frozenset(donor.schedule for donor in found if donor and donor.is_known and not donor.is_faster)


def choose(workload: Workload, target: Target, lenders: Lenders) -> Donor | None:
    """The schedule to use where nothing can be tried, or None for the rule's own.

    The same kernel on the same target counts as known: its best where that is faster by a margin, else the rule's. A
    near kernel lends where class, registers and cores are the same and the shape is close.
    """
    lendings = lenders.lookup(workload.class_, target)
    found = _sound_donors(workload, target, lendings)
    known = [donor for donor in found if donor.is_known]
    return _best(known) if known else _best(_shipped(workload, target, lendings)) or _nearest(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """What a kernel can be given on one machine: what held there, and what is worth a trial there, the best first."""

    proven: Donor | None = None
    untried: tuple[Donor, ...] = ()


def prospects(workload: Workload, target: Target, lenders: Lenders, *, machine: str) -> Prospects:
    """What the user's own store knows of the kernel on this machine, and whose word is to be put to the test.

    Where it knows of none that holds, what came with edgetrain is taken, unless it was tried here. Nobody else's word
    counts: a measurement that a stranger says was made here is a claim like another. Worth a trial is what claims more
    for this very kernel than held so far, and where nobody knows this one, what the nearest lends.
    """
    lendings = lenders.lookup(workload.class_, target)
    verdicts = [one for one in (_verdict(workload, target, lending, machine) for lending in lendings) if one]
    tried_here = {verdict.schedule for verdict in verdicts}
    shipped = _best([one for one in _shipped(workload, target, lendings) if one.schedule not in tried_here])
    proven = _best(verdicts) or shipped
    found = _sound_donors(workload, target, lendings)
    known = [donor for donor in found if donor.is_known]
    if not known and not verdicts and shipped is None:
        nearest = _nearest(found)
        return Prospects(untried=(nearest,) if nearest is not None else ())
    if proven is not None:
        tried_here.add(proven.schedule)
    least = LEAST_SPEEDUP[SAME] * (proven.speedup if proven is not None else 1.0)
    promising = [d for d in known if d.is_faster and d.speedup >= least and d.schedule not in tried_here]
    untried: dict[Schedule, Donor] = {}
    for donor in sorted(promising, key=lambda donor: (-donor.speedup, donor.id)):
        untried.setdefault(donor.schedule, donor)
    return Prospects(proven=proven, untried=tuple(untried.values())[:MOST_UNTRIED])


def entries_to_verify(workload: Workload, target: Target, lenders: Lenders) -> list[Donor]:
    """Every entry that says it is faster for this very kernel, on this target or a near one; in the order of ids."""
    found = _sound_donors(workload, target, lenders.lookup(workload.class_, target))
    claimed = [d for d in found if d.likeness == SAME and d.is_faster and _is_near(d.target_distance)]
    return sorted(claimed, key=lambda donor: donor.id)


def _verdict(workload: Workload, target: Target, lending: Lending, machine: str) -> Donor | None:
    """What became of a schedule for this very kernel on this machine; None where it was not tried here.

    A failure has no measurement, and so no machine: it counts because it is in the user's own store.
    """
    own = lending.own
    donor = _donor(workload, target, own, lending.level) if own is not None else None
    if own is None or donor is None or not donor.is_known:
        return None
    here = dataclasses.replace(own, measurements=tuple(m for m in own.measurements if m.machine == machine))
    if here.speedup is None:
        return donor if own.outcome == FAILED else None
    return dataclasses.replace(donor, speedup=here.speedup, is_faster=donor.is_faster and _is_sound(own))


def _shipped(workload: Workload, target: Target, lendings: Sequence[Lending]) -> list[Donor]:
    """What the seed alone says of this very kernel, for a target with the same registers and cores.

    Rules go by no more than that, and both came with the same code: so one is as good as the other, untried.
    """
    seed = (one.shipped for one in lendings if one.shipped is not None and _is_sound(one.shipped))
    found = (_donor(workload, target, entry, SEED) for entry in seed)
    return [
        dataclasses.replace(donor, is_shipped=True)
        for donor in found
        if donor is not None and donor.likeness == SAME and _is_near(donor.target_distance)
    ]


def _best(known: Sequence[Donor]) -> Donor | None:
    """Of what is known for a kernel, the fastest that is faster by the margin."""
    good = [donor for donor in known if donor.is_faster and donor.speedup >= LEAST_SPEEDUP[SAME]]
    return max(good, key=lambda donor: (donor.speedup, donor.id), default=None)


def _nearest(found: Sequence[Donor]) -> Donor | None:
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


def _sound_donors(workload: Workload, target: Target, lendings: Sequence[Lending]) -> list[Donor]:
    found = (_donor(workload, target, one.entry, one.level) for one in lendings if _is_sound(one.entry))
    return [donor for donor in found if donor is not None]


def _donor(workload: Workload, target: Target, entry: Entry, level: str) -> Donor | None:
    if entry.versions.rules != RULES_VERSION or entry.workload.dtype != workload.dtype:
        return None
    likeness = SAME if is_same(workload, entry.workload) else CLASS
    return Donor(
        schedule=Schedule(entry.schedule.rule, dict(entry.schedule.parameters)),
        likeness=likeness if entry.workload.class_ == workload.class_ else FAMILY,
        shape_distance=shape_distance(workload, entry.workload),
        target_distance=entry.target.distance(target),
        speedup=entry.speedup or 0.0,
        is_faster=entry.outcome == FASTER,
        level=level,
        id=entry.id,
    )
