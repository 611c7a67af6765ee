"""A measuring process that crashes or hangs costs a trial, not the search."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetrain_tuner.measure.bench import Subject
from edgetrain_tuner.measure.outcome import MeasuringLostError, Opened
from edgetrain_tuner.measure.serve import packed
from edgetrain_tuner.measure.worker import Limits, Worker
from tests.edgetrain_tuner.measure.test_bench import product, tile_of

pytestmark = pytest.mark.compile

ROOT = Path(__file__).resolve().parents[3]
COMMAND = (sys.executable, "-m", "tests.edgetrain_tuner.measure.stand_in")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'tuner'}")
    with Worker(COMMAND, {}, limits=Limits(compile_s=3.0)) as worker:
        assert isinstance(worker.open(0, packed(Subject(function=product(), outputs=1))), Opened)
        yield worker


def test_the_process_answers_after_a_crash_a_hang_and_nonsense(worker: Worker) -> None:
    rows = {4: "crashed", 3: "timed out", 2: "wrong", 5: "failed", 6: "measured"}
    for count, status in rows.items():
        assert worker.measure(0, tile_of(count), budget_s=0.01).status == status, count
    assert worker.restarts == 2


def test_a_kernel_that_is_closed_can_be_opened_again(worker: Worker) -> None:
    worker.close(0)
    assert isinstance(worker.open(0, packed(Subject(function=product(), outputs=1))), Opened)
    assert worker.measure(0, tile_of(6), budget_s=0.01).status == "measured"


def test_a_device_that_is_lost_is_said_once_for_all() -> None:
    """A process with a place for trials that is gone."""
    text = (
        "import sys\n"
        "from edgetrain_tuner.measure.outcome import MeasuringLostError\n"
        "from edgetrain_tuner.measure.serve import serve\n"
        "class Gone:\n"
        "    def open(self, number, subject): raise MeasuringLostError({'what': 'no route', 'exit_code': 6})\n"
        "sys.stdin.readline()\n"
        "serve(Gone(), sys.stdin, sys.stdout)\n"
    )
    with Worker((sys.executable, "-c", text), {}) as worker:
        for _ in range(2):  # the process is there still, and says it again
            with pytest.raises(MeasuringLostError, match="no route") as caught:
                worker.open(0, packed(Subject(function=product(), outputs=1)))
            assert caught.value.told == {"what": "no route", "exit_code": 6}
        assert worker.restarts == 0


def test_a_process_that_does_not_start_is_said() -> None:
    with Worker((sys.executable, "-c", "raise SystemExit(3)"), {}) as worker:
        assert worker.open(0, packed(Subject(function=product(), outputs=1))) == "the measuring process ended"
