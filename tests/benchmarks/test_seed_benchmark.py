"""What goes into the seed, and that what is there is alive."""

from __future__ import annotations

import os

import pytest

from benchmarks.seed import MARGIN, bound_to, reduced, winners
from edgetrain.compiler.schedules import KernelRecord, ScheduleChoice
from edgetrain.compiler.versions import tool_versions
from edgetrain.recipes import list_recipes
from edgetrain.tuning.report import KernelRow, TuningReport
from edgetrain_tuner.cache.entry import Entry, Versions
from edgetrain_tuner.cache.jsonl import BadLine, read_lines
from edgetrain_tuner.cache.levels import SEED_FOLDER
from edgetrain_tuner.schedule import RULES_VERSION
from tests.edgetrain_tuner.cache.entries import entry, measurement


def _quick(speedup: float, tile: tuple[int, int] = (1, 1), outcome: str = "faster") -> Entry:
    return entry(tile=tile, outcome=outcome, measurements=(measurement(2e-3 / speedup),))


def _report(*, speedup: float, source: str = "tuned", step: float = 1.1) -> TuningReport:
    row = KernelRow(
        name="product",
        symbol="k0",
        calls=1,
        source=source,
        schedule="",
        seconds=speedup,
        tuned_seconds=1.0,
        flops=1,
        moved_bytes=1,
        roofline_seconds=1.0,
        trials=1,
    )
    return TuningReport(
        model="digits",
        target="host",
        rates_basis="assumed",
        trials=1,
        step_seconds=step,
        tuned_step_seconds=1.0,
        entries=1,
        kernels=(row,),
    )


RECORDS = {"k0": KernelRecord(workload=entry().workload, asked=ScheduleChoice(), choice=ScheduleChoice())}


def test_what_wins_three_times_is_kept_and_the_best_of_those() -> None:
    good, better = _quick(1.2), _quick(1.5, (2, 2))
    again = {good.id: 1.3, better.id: 1.4}
    assert winners([good, better], _report(speedup=1.1), RECORDS, again) == [better]
    again[better.id] = 1.1
    assert winners([good, better], _report(speedup=1.1), RECORDS, again) == [good], "the least of its races counts"


@pytest.mark.parametrize(
    ("found", "in_step", "source", "again"),
    [
        (_quick(1.04), 1.2, "tuned", 1.2),
        (_quick(1.2), 1.04, "tuned", 1.2),
        (_quick(1.2), 1.2, "tuned", 1.04),
        (_quick(1.2), 1.2, "rule", 1.2),
        (_quick(1.2, outcome="slower"), 1.2, "tuned", 1.2),
        (_quick(1.2), 1.2, "tuned", None),
    ],
    ids=["search", "step", "race", "lost in the step", "slower", "not raced again"],
)
def test_what_does_not_win_everywhere_is_not_kept(
    found: Entry, in_step: float, source: str, again: float | None
) -> None:
    verified = {} if again is None else {found.id: again}
    assert winners([found], _report(speedup=in_step, source=source), RECORDS, verified) == []


def test_of_a_step_that_became_no_faster_nothing_is_kept() -> None:
    found = _quick(1.2)
    assert winners([found], _report(speedup=1.2, step=1.01), RECORDS, {found.id: 1.2}) == [found]
    assert winners([found], _report(speedup=1.2, step=1.0), RECORDS, {found.id: 1.2}) == []


def test_of_an_entry_its_claim_the_recipe_and_the_tool_remain() -> None:
    whole = entry(measurements=(measurement(1e-3, machine=1), measurement(1.5e-3, machine=2)))
    kept = reduced(whole, "digits")
    assert kept.id == whole.id
    (only,) = kept.measurements
    assert (only.seconds, only.machine) == (1.5e-3, "0" * 16), "the least hopeful one, of no machine"
    assert kept.provenance is not None
    assert (kept.provenance.model, kept.provenance.who) == ("digits", "")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_process_is_bound_for_a_while() -> None:
    before = os.sched_getaffinity(0)
    with bound_to(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def _shipped() -> list[tuple[str, Entry]]:
    found = []
    for path in sorted(SEED_FOLDER.glob("*.jsonl")):
        for line, item in read_lines(path):
            assert not isinstance(item, BadLine), f"{path}, line {line}"
            found.append((path.stem, item))
    return found


def test_the_seed_that_ships_is_of_these_rules_and_this_tvm() -> None:
    """Entries of other versions are never used. Make it again: see `benchmarks/seed.py`."""
    here = Versions(tvm=tool_versions()["apache-tvm"], rules=RULES_VERSION)
    assert {entry.versions for _, entry in _shipped()} <= {here}


def test_the_seed_that_ships_is_what_the_script_writes() -> None:
    for recipe, one in _shipped():
        assert recipe in list_recipes()
        assert one == reduced(one, recipe)
        assert one.outcome == "faster"
        assert (one.speedup or 0.0) >= MARGIN
