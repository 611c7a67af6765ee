from __future__ import annotations

import pytest

from edgetrain.cli.colour import with_colour
from edgetrain.cli.console import Console
from edgetrain.locate import uses_colour


@pytest.mark.parametrize(
    ("is_terminal", "environment", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, False),
        (False, {"CLICOLOR_FORCE": "1"}, True),
        (False, {"CLICOLOR_FORCE": "0"}, False),
        (True, {"CLICOLOR": "0"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_follows_the_terminal_and_the_usual_variables(
    is_terminal: bool, environment: dict[str, str], expected: bool
) -> None:
    assert uses_colour(is_terminal=is_terminal, environment=environment) is expected


def test_only_the_word_that_begins_a_message_has_colour() -> None:
    text = "error: no error: here\nwhy: because\n\nhint: do this\nplain"
    painted = with_colour(text)
    assert painted == (
        "\x1b[1;31merror:\x1b[0m no error: here\n\x1b[1mwhy:\x1b[0m because\n\n\x1b[1;36mhint:\x1b[0m do this\nplain"
    )


def test_a_console_paints_what_it_says_and_never_the_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = Console()
    console.warn("mind this")
    console.data("error: this is data\n")
    captured = capsys.readouterr()
    assert captured.err == "\x1b[1;33mwarning:\x1b[0m mind this\n"
    assert captured.out == "error: this is data\n"
