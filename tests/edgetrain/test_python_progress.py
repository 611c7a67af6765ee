from __future__ import annotations

import io

import pytest

from edgetrain.python_progress import PythonProgress, python_progress
from tests.edgetrain.cli.screen import lines_on_screen
from tests.edgetrain.cli.test_stage_progress import MESSAGES, Terminal


def drive(progress: PythonProgress) -> None:
    for message in MESSAGES:
        progress(*message)
    progress.tell("mind this")
    progress.on_train_begin({"step": 0, "steps": 2, "epochs": 1})
    for step in (1, 2):
        progress.on_step_end(step, {"loss": 0.5, "seconds": 0.1})
    progress.on_epoch_end(1, {"loss": 0.5})
    progress.on_train_end({"step": 2})


def test_where_nobody_looks_it_is_silent_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert python_progress(None) is None
    assert python_progress(False) is None
    assert python_progress(True) is not None


def test_on_a_terminal_it_is_shown_unless_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    assert python_progress(None) is not None
    assert python_progress(False) is None


def test_without_a_bar_each_stage_and_epoch_is_a_line() -> None:
    stream = io.StringIO()
    drive(PythonProgress(stream, has_bar=False))
    assert stream.getvalue().splitlines() == [
        "importing the model",
        "scheduling kernels",
        "linking",
        "mind this",
        "epoch 1: loss 0.5",
    ]


def test_a_bar_leaves_room_for_what_is_told() -> None:
    stream = Terminal()
    drive(PythonProgress(stream, has_bar=True))
    lines = lines_on_screen(stream.getvalue())
    assert lines[:2] == ["mind this", "epoch 1: loss 0.5"]
    assert "2/2" in lines[2]
