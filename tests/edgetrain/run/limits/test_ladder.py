"""Which plan runs inside a limit, against a search over all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.errors import InternalError
from edgetrain.run.limits.ladder import Ladder, Rung, ladder_budgets


def rung(nbytes: int, seconds: float = 1.0, name: str = "") -> Rung:
    return Rung(planned_peak_bytes=nbytes, planned_seconds=seconds, program=Path(name or f"/{nbytes}"))


RUNGS = st.lists(
    st.builds(rung, st.integers(1, 9), st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from(["/a", "/b"])), min_size=1
)


@given(RUNGS, st.none() | st.integers(0, 10))
def test_the_best_rung_is_the_quickest_that_fits(rungs: list[Rung], limit: int | None) -> None:
    best = Ladder.of(rungs).best_within(limit)
    fitting = [r for r in rungs if limit is None or r.planned_peak_bytes <= limit]
    if not fitting:
        assert best is None
    else:
        assert best in fitting
        assert best.planned_seconds == min(r.planned_seconds for r in fitting)


@given(RUNGS)
def test_rungs_are_sorted_and_each_memory_stands_once(rungs: list[Rung]) -> None:
    sizes = [r.planned_peak_bytes for r in Ladder.of(rungs).rungs]
    assert sizes == sorted(set(sizes))
    assert set(sizes) == {r.planned_peak_bytes for r in rungs}
    assert Ladder.of(rungs) == Ladder.of(reversed(rungs))


@given(RUNGS)
def test_one_down_needs_less_and_one_up_is_quicker(rungs: list[Rung]) -> None:
    ladder = Ladder.of(rungs)
    for r in ladder.rungs:
        below, above = ladder.below(r), ladder.above(r)
        assert (below is None) == (r == ladder.lowest)
        assert below is None or below.planned_peak_bytes < r.planned_peak_bytes
        quicker = [x for x in ladder.rungs if x.planned_seconds < r.planned_seconds]
        quicker = [x for x in quicker if x.planned_peak_bytes > r.planned_peak_bytes]
        assert above == min(quicker, key=lambda x: x.planned_peak_bytes, default=None)


def test_a_rung_can_be_added_and_taken_away() -> None:
    ladder = Ladder.of([rung(5)])
    assert ladder.with_rung(rung(3)).lowest == rung(3)
    assert ladder.with_rung(rung(3)).without(rung(3)) == ladder
    with pytest.raises(InternalError, match="needs a rung"):
        ladder.without(rung(5))


def test_a_rung_survives_json() -> None:
    assert Rung.from_json(rung(7, 0.1).to_json()) == rung(7, 0.1)


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(2, 9))
def test_budgets_go_from_the_least_to_the_most(one: int, other: int, count: int) -> None:
    least, most = sorted((one, other))
    budgets = ladder_budgets(least, most, rungs=count)
    assert list(budgets) == sorted(budgets)
    assert budgets[-1] == most
    assert budgets[0] in (least, most)
    assert len(budgets) == (count if least < most else 1)
