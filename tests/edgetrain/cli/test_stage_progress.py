from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.cli.console import Console, LogLines, StdoutClosedError
from edgetrain.cli.stage_progress import StageProgress
from tests.edgetrain.cli.conftest import COMMAND
from tests.edgetrain.cli.screen import lines_on_screen, run_on_a_terminal


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


def test_a_message_has_a_line_of_its_own_while_a_bar_is_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console()
    console.talk = terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with StageProgress(console) as stages:
        for message in MESSAGES[:3]:
            stages(*message)
        console.say("nothing fits")
        console.warn("another plan")
        LogLines(console).emit(logging.makeLogRecord({"msg": "a message of the log"}))
        console.data("some data\n")
        stages(*MESSAGES[3])
    lines = lines_on_screen(terminal.getvalue())
    assert lines == ["nothing fits", "warning: another plan", "a message of the log", "some data", ""]


@pytest.mark.compile
def test_no_two_messages_of_a_command_share_a_line_on_a_terminal(
    tmp_path: Path, command_environment: Mapping[str, str]
) -> None:
    words = ("fit", "digits", "--budget", "300kB")
    code, written = run_on_a_terminal((*COMMAND, *words), cwd=tmp_path, environment=command_environment)
    lines = lines_on_screen(written)
    assert code == 3, written
    assert "nothing fits; looking for settings that do" in lines
    begun = ("run folder ", "digits on host", "update full: ", "schedules: ", "error: no plan fits 300kB", "hint: ")
    assert [sum(line.startswith(text) for line in lines) for text in begun] == [1] * len(begun), lines
