from __future__ import annotations

import io

import pytest

from edgetrain.cli.console import Console, StdoutClosedError
from edgetrain.cli.stage_progress import StageProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


MESSAGES = [("importing the model", 0, 0), *(("scheduling kernels", done, 3) for done in range(4)), ("linking", 0, 0)]


def test_without_a_terminal_each_stage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with StageProgress(Console()) as stages:
        for message in MESSAGES:
            stages(*message)
    assert capsys.readouterr().err == "importing the model\nscheduling kernels\nlinking\n"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with StageProgress(Console(quiet=True)) as stages:
        for message in MESSAGES:
            stages(*message)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar_and_is_clean_afterwards() -> None:
    console = Console()
    console.talk = terminal = Terminal()
    with StageProgress(console) as stages:
        for message in MESSAGES:
            stages(*message)
        stages.on_train_begin({})
    shown = terminal.getvalue()
    assert "scheduling kernels 3/3" in shown
    assert not shown.replace("\r", "\n").splitlines()[-1].strip()


class Closed(io.StringIO):
    def write(self, text: str, /) -> int:
        raise BrokenPipeError


def test_progress_survives_a_reader_who_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Closed())
    Console().say("still here")


def test_lost_data_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(StdoutClosedError):
        Console().data("lost")
