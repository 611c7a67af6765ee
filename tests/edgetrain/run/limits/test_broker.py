"""Several jobs inside one budget: the division by arithmetic, the ledger by seats and by processes that die."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.errors import PlanInfeasibleError, UsageError
from edgetrain.run.limits.broker import Claim, Seat, Share, fair_shares, seat
from edgetrain.run.limits.ladder import Ladder, Rung

RUNG = Rung(planned_peak_bytes=1, planned_seconds=1.0, program=Path("/1"))
LADDER = Ladder.of([RUNG])


def claim(least: int, most: int, weight: int = 1, total: int = 100) -> Claim:
    return Claim(folder="/job", process=1, total_bytes=total, least_bytes=least, most_bytes=most, weight=weight)


CLAIMS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 300), st.integers(1, 5)).map(lambda t: claim(t[0], t[0] + t[1], t[2])),
    min_size=1,
    max_size=5,
)


@given(CLAIMS, st.integers(0, 500))
def test_everybody_gets_its_least_nobody_more_than_its_most_and_all_no_more_than_the_whole(
    claims: list[Claim], spare: int
) -> None:
    total = sum(c.least_bytes for c in claims) + spare
    shares = fair_shares(total, claims)
    assert sum(shares) <= total
    assert all(c.least_bytes <= share <= c.most_bytes for c, share in zip(claims, shares, strict=True))
    wanted = sum(c.most_bytes for c in claims)
    assert sum(shares) >= min(total, wanted) - len(claims), "memory that somebody could use lies idle"


@given(CLAIMS, st.integers(0, 500), st.integers(0, 2**32))
def test_the_order_of_the_claims_does_not_matter(claims: list[Claim], spare: int, seed: int) -> None:
    total = sum(c.least_bytes for c in claims) + spare
    order = list(range(len(claims)))
    random.Random(seed).shuffle(order)
    shares = fair_shares(total, claims)
    assert fair_shares(total, [claims[i] for i in order]) == tuple(shares[i] for i in order)


@pytest.mark.parametrize(
    ("claims", "shares"),
    [
        ([claim(10, 1000)], (100,)),
        ([claim(10, 40)], (40,)),
        ([claim(10, 1000), claim(10, 1000)], (50, 50)),
        ([claim(10, 1000, 3), claim(10, 1000, 1)], (70, 30)),
        ([claim(10, 20), claim(10, 1000)], (20, 80)),
        ([claim(40, 1000), claim(60, 1000)], (40, 60)),
        ([claim(10, 12), claim(10, 30), claim(10, 1000)], (12, 30, 58)),
    ],
)
def test_shares_that_can_be_checked_by_hand(claims: list[Claim], shares: tuple[int, ...]) -> None:
    assert fair_shares(100, claims) == shares


@pytest.mark.parametrize("text", ["desk", "=2GB", "a/b=2GB", "desk=much", ".=1GB", "desk="])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Share.parse(text)
    assert Share.parse("desk=2GB") == Share(name="desk", total_bytes=2 * 10**9)


class Clock:
    """Moves by a second each time, so that a seat always looks."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def __call__(self) -> float:
        return float(next(self._ticks))


class Table:
    """Seats of one share in this process: a lock belongs to an open file, so they meet as processes would."""

    def __init__(self, folder: Path, total: int = 100) -> None:
        self.folder, self.total = folder, total
        self.stack = ExitStack()
        self.said: list[str] = []

    def sit(
        self, name: str, least: int, most: int, *, weight: int = 1, stack: ExitStack | None = None
    ) -> tuple[Seat, int]:
        return (stack or self.stack).enter_context(
            seat(
                self.folder,
                Share(name="desk", total_bytes=self.total, weight=weight),
                folder=self.folder / name,
                least_bytes=least,
                most_bytes=most,
                notify=self.said.append,
                clock=Clock(),
            )
        )

    def held(self, *seats: Seat) -> int:
        return sum(s.claim.held_bytes for s in seats)


def test_a_job_alone_gets_all_it_can_use(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.stack:
        place, granted = table.sit("one", 10, 70)
        assert granted == 70
        place.settle(65)
        assert place.allowance(LADDER, RUNG) == 70


def test_a_second_job_makes_the_first_shrink_and_its_end_lets_it_grow(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.stack:
        first, granted = table.sit("first", 10, 1000)
        assert granted == 100
        first.settle(40)  # as it happens it uses less, so that there is room for the second
        with ExitStack() as second_job:
            second, granted = table.sit("second", 10, 1000, stack=second_job)
            assert granted == 50
            assert first.allowance(LADDER, RUNG) == 50
            assert not first.reserve(51)
            assert first.reserve(50)
            assert table.held(first, second) == 100
        assert first.allowance(LADDER, RUNG) == 100
        assert first.reserve(100)


def test_nobody_grows_into_what_another_still_holds(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.stack:
        first, _ = table.sit("first", 10, 60)
        first.settle(60)
        second, granted = table.sit("second", 10, 1000, weight=9)
        assert granted == 40, "its share is more, but the first has not stepped down yet"
        assert not second.reserve(41)
        share = first.allowance(LADDER, RUNG)
        assert share is not None
        assert share < 60
        first.settle(share)
        assert second.reserve(100 - share)
        assert table.held(first, second) == 100


def test_too_little_for_all_is_refused_with_who_holds_what(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.stack:
        first, _ = table.sit("first", 60, 1000)
        first.settle(80)
        with pytest.raises(
            PlanInfeasibleError, match="no room in `desk`: it is 100B, and all its jobs need 110B"
        ) as caught:
            table.sit("second", 50, 1000)
        assert f"`{tmp_path / 'first'}` (process {os.getpid()}) holds 80B, 60B at least" in caught.value.why
        assert "this one needs 50B" in caught.value.why
        assert first.allowance(LADDER, RUNG) == 100, "the job that was refused left a claim"


def test_another_size_of_the_same_share_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.stack:
        table.sit("first", 10, 20)
        with pytest.raises(UsageError, match="`desk` is 100B, not 200B"):
            Table(tmp_path, total=200).sit("second", 10, 20)
    with Table(tmp_path, total=200).stack as stack:
        assert Table(tmp_path, total=200).sit("third", 10, 150, stack=stack)[1] == 150, "the share is empty, and free"


_HOLD = """
import sys, time
from pathlib import Path
from edgetrain.run.limits.broker import Share, seat
share = Share(name="desk", total_bytes=100, wait=sys.argv[2] == "wait")
say = lambda line: print(line, flush=True)
with seat(Path(sys.argv[1]), share, folder=Path("child"), least_bytes=60, most_bytes=90, notify=say) as (_, granted):
    print("granted", granted, flush=True)
    time.sleep(600)
"""


def start(folder: Path, how: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _HOLD, str(folder), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_claim_of_a_job_that_was_killed_is_gone(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with start(tmp_path, "now") as process, table.stack:
        assert line_of(process) == "granted 90"
        with pytest.raises(PlanInfeasibleError):
            table.sit("second", 50, 1000)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert table.sit("second", 50, 1000)[1] == 100
        assert len(list((tmp_path / "desk").glob("*.json"))) == 1


def test_a_job_that_waits_begins_when_another_ends(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.stack:
        first, _ = table.sit("first", 60, 1000)
        process = start(tmp_path, "wait")
        try:
            assert line_of(process).startswith("waiting for room in `desk`: `")
            first.close = lambda: None  # type: ignore[method-assign]  # closed here, and not again by its block
            Seat.close(first)
            assert line_of(process) == "granted 90"
        finally:
            process.kill()
            process.communicate()


def test_a_job_that_was_admitted_waits_for_the_others_to_step_down(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.stack:
        first, granted = table.sit("first", 40, 1000)
        assert granted == 100
        process = start(tmp_path, "now")
        try:
            assert "to make room at the end of a step" in line_of(process)
            share = first.allowance(LADDER, RUNG)
            assert share == 40
            first.settle(share)
            assert line_of(process) == "granted 60"
        finally:
            process.kill()
            process.communicate()
