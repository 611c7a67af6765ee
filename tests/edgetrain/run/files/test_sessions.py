from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from edgetrain.run.files.sessions import SESSIONS, Session, SessionKeeper, read_sessions
from edgetrain.run.sensors.energy import EnergyMeter, PowerMeter

EARLIER = Session(after_step=0, steps=4, seconds=9.0, step_seconds=8.0, modelled_j=2.0)


def keeper(path: Path, *, joules: float | None = None, earlier: tuple[Session, ...] = ()) -> SessionKeeper:
    meter = EnergyMeter(PowerMeter("a sensor", lambda: 1.0) if joules is not None else None)
    meter.joules = joules
    seconds = itertools.count(10.0)
    return SessionKeeper(path, earlier, meter, joules_per_step=0.5, clock=lambda: next(seconds))


def test_a_session_says_what_its_own_steps_took(tmp_path: Path) -> None:
    kept = keeper(tmp_path / SESSIONS, joules=3.0, earlier=(EARLIER,))
    kept.on_train_begin({"step": 4})
    kept.on_step_end(5, {"seconds": 0.25})
    kept.on_step_end(6, {"seconds": 0.5})
    kept.on_train_end({"step": 6})
    kept.write()
    this = Session(
        after_step=4, steps=2, seconds=1.0, step_seconds=0.75, modelled_j=1.0, measured_j=3.0, sensor="a sensor"
    )
    assert kept.sessions == read_sessions(tmp_path / SESSIONS) == (EARLIER, this)


def test_what_was_done_is_known_after_each_epoch(tmp_path: Path) -> None:
    kept = keeper(tmp_path / SESSIONS)
    kept.on_train_begin({"step": 0})
    kept.on_step_end(1, {"seconds": 0.25})
    kept.on_epoch_end(1, {})
    assert [session.steps for session in read_sessions(tmp_path / SESSIONS)] == [1]


def test_a_session_that_took_no_step_is_none(tmp_path: Path) -> None:
    kept = keeper(tmp_path / SESSIONS, earlier=(EARLIER,))
    kept.on_train_begin({"step": 4})
    kept.on_train_end({"step": 4})
    assert kept.sessions == (EARLIER,)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "edgetrain.sessions/1", "sessions": [{}]}'])
def test_records_that_are_broken_are_left_out_with_a_warning(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / SESSIONS).write_text(text)
    assert read_sessions(tmp_path / SESSIONS) == ()
    assert "covers this session only" in caplog.text


def test_a_disk_that_refuses_stops_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    keeper(tmp_path / "file" / SESSIONS, earlier=(EARLIER,)).write()
    assert "cannot write" in caplog.text
