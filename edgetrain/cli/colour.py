"""Colour for the words that begin a message. What people read first, they find first."""

from __future__ import annotations

from collections.abc import Mapping

_RESET = "\x1b[0m"
_CODES: Mapping[str, str] = {
    "error:": "\x1b[1;31m",
    "warning:": "\x1b[1;33m",
    "hint:": "\x1b[1;36m",
    "why:": "\x1b[1m",
}


def with_colour(text: str) -> str:
    """The text with colour on the word that begins a line, where it is one of ours."""
    return "\n".join(_painted(line) for line in text.split("\n"))


def _painted(line: str) -> str:
    word = line.partition(" ")[0]
    return f"{_CODES[word]}{word}{_RESET}{line.removeprefix(word)}" if word in _CODES else line
