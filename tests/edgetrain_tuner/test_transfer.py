"""Who lends a schedule: the same kernel before a like one, near before far, and nobody where it would be a gamble."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from edgetrain_tuner.cache.entry import Check, Entry, Measurement, Target, Versions
from edgetrain_tuner.transfer import Prospects, choose, donors, entries_to_verify, prospects, shape_distance, tried
from tests.edgetrain_tuner.cache.entries import BOARD, HOST, entry, measurement

WORKLOAD = entry().workload
HERE, THERE = 7, 8  # machines
MACHINE = f"{HERE:016x}"


def _measured(speedup: float, machine: int) -> Measurement:
    return measurement(2e-3 / speedup, machine=machine)


@dataclass(frozen=True)
class Lent:
    entry: Entry
    level: str = "team"
    own: Entry | None = None
    shipped: Entry | None = None


class Shelf:
    """A cache of a few entries; `own` are those of the user's own store."""

    def __init__(self, *entries: Entry, own: Sequence[Entry] = (), lent: Sequence[Lent] = ()) -> None:
        self._lent = [*(Lent(one) for one in entries), *(Lent(one, "user", one) for one in own), *lent]

    def lookup(self, class_: str, target: Target) -> Sequence[Lent]:
        return [
            lent for lent in self._lent if (lent.entry.workload.class_, lent.entry.target.isa) == (class_, target.isa)
        ]

    def by_family(self, family: str) -> Sequence[Lent]:
        return [lent for lent in self._lent if lent.entry.workload.family == family]


def _sized(*dims: int, **changes: object) -> Entry:
    workload = dataclasses.replace(WORKLOAD, dims=dims, operations=1, bytes=1)
    return entry(**{"tile": dims[:2], **changes, "workload": workload})  # type: ignore[arg-type]


def _tile(donor: object) -> tuple[int, ...]:
    return donor.schedule.parameters["tile"]  # type: ignore[attr-defined, no-any-return]


def test_the_same_kernel_on_the_same_target_is_taken_as_it_is() -> None:
    chosen = choose(WORKLOAD, HOST, Shelf(entry(tile=(1, 1)), _sized(400, 512, 128)))
    assert chosen is not None
    assert (chosen.likeness, _tile(chosen), chosen.level) == ("same", (1, 1), "team")


def test_the_fastest_of_several_is_taken() -> None:
    quick = entry(tile=(2, 2), measurements=(measurement(0.5e-3),))
    chosen = choose(WORKLOAD, HOST, Shelf(entry(tile=(1, 1)), quick))
    assert chosen is not None
    assert _tile(chosen) == (2, 2)


@pytest.mark.parametrize(
    "poor",
    [
        entry(measurements=(measurement(1.99e-3),)),
        entry(measurements=(), outcome="failed"),
        entry(outcome="slower", measurements=(measurement(3e-3),)),
        entry(outcome="slower", measurements=(measurement(0.5e-3),)),
        entry(check=Check(largest_error=0.5, against="unscheduled")),
        entry(versions=Versions(tvm="0.27.0", rules=999)),
    ],
    ids=["hardly faster", "failed", "slower", "fast alone", "wrong", "of other rules"],
)
def test_what_promises_nothing_is_not_used_untried(poor: Entry) -> None:
    assert choose(WORKLOAD, HOST, Shelf(poor)) is None


def test_a_kernel_that_was_searched_in_vain_keeps_the_rule_whatever_its_neighbours_say() -> None:
    in_vain = entry(outcome="slower", measurements=(measurement(3e-3),))
    assert choose(WORKLOAD, HOST, Shelf(in_vain, _sized(384, 512, 256))) is None


def test_a_near_kernel_lends_and_a_far_one_does_not() -> None:
    near, far = _sized(384, 512, 256), _sized(12, 16, 4096)
    chosen = choose(WORKLOAD, HOST, Shelf(near, far))
    assert chosen is not None
    assert (chosen.likeness, _tile(chosen)) == ("class", (384, 512))
    assert choose(WORKLOAD, HOST, Shelf(far)) is None


@pytest.mark.parametrize(
    ("change", "is_near"),
    [({"cpu": "other"}, True), ({"cache_bytes": 1}, True), ({"cores": 64}, False), ({"vector_bits": 512}, False)],
    ids=str,
)
def test_registers_and_cores_make_another_target(change: dict[str, object], is_near: bool) -> None:
    other = dataclasses.replace(HOST, **change)  # type: ignore[arg-type]
    assert (choose(WORKLOAD, HOST, Shelf(entry(target=other))) is not None) == is_near


def test_donors_come_by_likeness_then_shape_then_target_then_gain() -> None:
    same = entry(tile=(9, 9))
    near, far = _sized(384, 512, 256), _sized(3, 4, 5)
    foreign = _sized(384, 512, 257, target=dataclasses.replace(HOST, cpu="other"), tile=(8, 8))
    relative = entry(class_=77, tile=(7, 7))
    board = entry(class_=77, tile=(6, 6), target=BOARD)
    ranked = donors(WORKLOAD, HOST, Shelf(board, relative, far, foreign, near, same), most=9)
    assert [_tile(donor) for donor in ranked] == [(9, 9), (384, 512), (8, 8), (3, 4), (7, 7), (6, 6)]
    assert len(donors(WORKLOAD, HOST, Shelf(near, same), most=1)) == 1


def test_a_schedule_is_lent_once_by_the_nearest() -> None:
    near, far = _sized(384, 512, 256, tile=(5, 5)), _sized(3, 4, 5, tile=(5, 5))
    (donor,) = donors(WORKLOAD, HOST, Shelf(far, near), most=9)
    assert donor.shape_distance == 1.0


def test_losers_lend_nothing_and_are_known() -> None:
    slow, failed = entry(tile=(1, 2), outcome="slower"), entry(tile=(3, 4), outcome="failed", measurements=())
    elsewhere = _sized(3, 4, 5, outcome="slower")
    shelf = Shelf(slow, failed, elsewhere)
    assert donors(WORKLOAD, HOST, shelf, most=9) == []
    assert {schedule.parameters["tile"] for schedule in tried(WORKLOAD, HOST, shelf)} == {(1, 2), (3, 4)}


def test_shapes_are_apart_by_doublings() -> None:
    one, other = _sized(8, 16).workload, _sized(16, 4).workload
    assert shape_distance(one, other) == 3.0
    fewer = dataclasses.replace(one, dims=(8,), operations=7)
    assert shape_distance(dataclasses.replace(one, operations=15), fewer) == 1.0


def test_what_held_on_this_machine_is_used_and_asks_for_no_trial() -> None:
    own = entry(tile=(1, 1), measurements=(_measured(1.5, HERE),))
    found = prospects(WORKLOAD, HOST, Shelf(own=[own]), machine=MACHINE)
    assert found.proven is not None
    assert (_tile(found.proven), found.proven.speedup) == ((1, 1), 1.5)
    assert found.untried == ()


def test_what_was_measured_elsewhere_is_tried_and_not_used() -> None:
    theirs = entry(tile=(1, 1), measurements=(_measured(5.0, THERE),))
    imported = entry(tile=(2, 2), measurements=(_measured(4.0, THERE),))
    found = prospects(WORKLOAD, HOST, Shelf(theirs, own=[imported]), machine=MACHINE)
    assert found.proven is None
    assert [_tile(donor) for donor in found.untried] == [(1, 1), (2, 2)]


def test_a_stranger_who_says_that_it_was_measured_here_is_not_believed() -> None:
    forged = entry(tile=(1, 1), measurements=(_measured(5.0, HERE),))
    found = prospects(WORKLOAD, HOST, Shelf(forged), machine=MACHINE)
    assert found.proven is None
    assert [_tile(donor) for donor in found.untried] == [(1, 1)]


def test_many_strangers_do_not_outvote_a_measurement_of_this_machine() -> None:
    claimed = tuple(_measured(5.0 + n, THERE) for n in range(5))
    own = entry(tile=(1, 1), outcome="slower", measurements=(_measured(0.5, HERE),))
    joined = dataclasses.replace(own, outcome="faster", measurements=(*claimed, *own.measurements))
    assert prospects(WORKLOAD, HOST, Shelf(lent=[Lent(joined, "user", own)]), machine=MACHINE) == Prospects()
    assert prospects(WORKLOAD, HOST, Shelf(own=[joined]), machine=MACHINE) == Prospects(), "an import has joined them"


@pytest.mark.parametrize(
    "known",
    [
        entry(tile=(1, 1), outcome="slower", measurements=(_measured(0.5, HERE),)),
        entry(tile=(1, 1), outcome="failed", measurements=(), check=Check(largest_error=1e300, against="default")),
    ],
    ids=["slower", "failed"],
)
def test_what_did_not_hold_here_is_not_tried_again(known: Entry) -> None:
    claim = entry(
        tile=(1, 1), measurements=(_measured(5.0, THERE),), check=Check(largest_error=1e-7, against="default")
    )
    assert claim.id != known.id
    near = _sized(384, 512, 256, measurements=(_measured(5.0, THERE),))
    assert prospects(WORKLOAD, HOST, Shelf(claim, near, own=[known]), machine=MACHINE) == Prospects()


def test_a_claim_is_tried_where_it_promises_more_than_what_held() -> None:
    own = entry(tile=(1, 1), measurements=(_measured(1.5, HERE),))
    more, hardly = (entry(tile=(n, n), measurements=(_measured(s, THERE),)) for n, s in ((2, 1.8), (3, 1.52)))
    found = prospects(WORKLOAD, HOST, Shelf(more, hardly, own=[own]), machine=MACHINE)
    assert found.proven is not None
    assert [_tile(donor) for donor in found.untried] == [(2, 2)]


def test_few_of_many_claims_are_tried_at_a_time_the_best_first() -> None:
    many = [entry(tile=(n, n), measurements=(_measured(1.0 + n, THERE),)) for n in range(1, 9)]
    found = prospects(WORKLOAD, HOST, Shelf(*many), machine=MACHINE)
    assert [_tile(donor) for donor in found.untried] == [(8, 8), (7, 7), (6, 6)]


def test_the_nearest_kernel_lends_for_a_trial_and_another_target_does_not() -> None:
    near = _sized(384, 512, 256)
    (donor,) = prospects(WORKLOAD, HOST, Shelf(near, _sized(384, 512, 512)), machine=MACHINE).untried
    assert donor.id == near.id
    wider = dataclasses.replace(HOST, vector_bits=512)
    assert prospects(WORKLOAD, HOST, Shelf(entry(target=wider), entry(target=BOARD)), machine=MACHINE) == Prospects()


def test_claims_are_what_is_said_to_be_faster_for_this_very_kernel() -> None:
    one, other = entry(tile=(1, 1)), entry(tile=(2, 2), target=dataclasses.replace(HOST, cpu="other"))
    nothing = entry(tile=(3, 3), outcome="slower")
    foreign = entry(tile=(4, 4), target=BOARD)
    found = entries_to_verify(WORKLOAD, HOST, Shelf(one, other, nothing, foreign, _sized(384, 512, 256)))
    assert {donor.id for donor in found} == {one.id, other.id}


def _seed(*entries: Entry) -> list[Lent]:
    return [Lent(one, "seed", shipped=one) for one in entries]


def test_the_seed_is_taken_untried_for_the_same_kernel_registers_and_cores() -> None:
    cache = dataclasses.replace(HOST, cache_bytes=HOST.cache_bytes // 2)
    found = prospects(WORKLOAD, HOST, Shelf(lent=_seed(entry(tile=(1, 1), target=cache))), machine=MACHINE)
    assert found.proven is not None
    assert (_tile(found.proven), found.proven.level, found.proven.is_shipped) == ((1, 1), "seed", True)
    assert found.untried == ()
    assert choose(WORKLOAD, HOST, Shelf(lent=_seed(entry(tile=(1, 1), target=cache)))) == found.proven


@pytest.mark.parametrize(
    "change",
    [{"vector_bits": 512}, {"vector_registers": 32}, {"cores": 64}],
    ids=lambda change: next(iter(change)),
)
def test_the_seed_for_other_registers_or_cores_is_not_taken(change: dict[str, int]) -> None:
    other = entry(tile=(1, 1), target=dataclasses.replace(HOST, **change))  # type: ignore[arg-type]
    assert other.target != HOST
    assert prospects(WORKLOAD, HOST, Shelf(lent=_seed(other)), machine=MACHINE) == Prospects()


def test_the_seed_for_another_shape_is_lent_and_tried_like_any_other() -> None:
    found = prospects(WORKLOAD, HOST, Shelf(lent=_seed(_sized(400, 512, 128))), machine=MACHINE)
    assert found.proven is None
    assert [donor.level for donor in found.untried] == ["seed"]


def test_what_was_tried_here_goes_before_the_seed() -> None:
    seed = _seed(entry(tile=(1, 1), measurements=(_measured(3.0, THERE),)))
    held = entry(tile=(2, 2), measurements=(_measured(1.2, HERE),))
    found = prospects(WORKLOAD, HOST, Shelf(own=[held], lent=seed), machine=MACHINE)
    assert found.proven is not None
    assert _tile(found.proven) == (2, 2)
    assert [_tile(donor) for donor in found.untried] == [(1, 1)], "it says more than what holds: a claim"
    lost = entry(tile=(1, 1), outcome="slower", measurements=(_measured(0.9, HERE),))
    assert prospects(WORKLOAD, HOST, Shelf(own=[lost], lent=seed), machine=MACHINE) == Prospects()


def test_a_team_cannot_speak_for_the_seed() -> None:
    """The same schedule in both: what the seed alone says of it counts, and here that is too little."""
    poor = entry(tile=(1, 1), measurements=(_measured(1.01, THERE),))
    boast = dataclasses.replace(poor, measurements=(_measured(9.0, THERE),))
    found = prospects(WORKLOAD, HOST, Shelf(lent=[Lent(boast, "team", shipped=poor)]), machine=MACHINE)
    assert found.proven is None
    assert [_tile(donor) for donor in found.untried] == [(1, 1)]


def test_more_than_the_seed_says_is_worth_a_trial_and_the_seed_itself_is_not() -> None:
    seed = _seed(entry(tile=(1, 1), measurements=(_measured(1.5, THERE),)))
    more = entry(tile=(2, 2), measurements=(_measured(2.0, THERE),))
    found = prospects(WORKLOAD, HOST, Shelf(more, lent=seed), machine=MACHINE)
    assert found.proven is not None
    assert _tile(found.proven) == (1, 1)
    assert [_tile(donor) for donor in found.untried] == [(2, 2)]
