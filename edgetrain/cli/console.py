"""Where the command line talks: data to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any, TextIO

from edgetrain.errors import EdgetrainError


class StdoutClosedError(Exception):
    """Whoever read our output has left, as `head` does."""


class _Talk:
    """Standard error for progress: a reader who leaves must not end a run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Console:
    """`talk` is a text stream for progress bars; it is quiet about a closed pipe."""

    def __init__(self, *, as_json: bool = False, verbose: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.verbose = verbose
        self.quiet = quiet
        self.talk: Any = _Talk(sys.stderr)

    @staticmethod
    def of(words: Sequence[str]) -> Console:
        """From the words of the command line, before they are known to make sense."""
        return Console(
            as_json="--json" in words,
            verbose=_has_switch(words, "v", "--verbose"),
            quiet=_has_switch(words, "q", "--quiet"),
        )

    def data(self, text: str) -> None:
        """Writes to standard output. Raises `StdoutClosedError` when nobody reads it any more."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise StdoutClosedError from error

    def say(self, line: str) -> None:
        """Talk that `--quiet` turns off."""
        if not self.quiet:
            self.warn(line)

    def warn(self, line: str) -> None:
        """Talk that `--quiet` leaves."""
        self.talk.write(line + "\n")
        self.talk.flush()

    def fail(self, error: EdgetrainError, cause: BaseException) -> None:
        """The error in words, and with `--json` also as an object on standard output."""
        if self.as_json:
            with contextlib.suppress(StdoutClosedError):
                self.data(json.dumps(error.to_json()) + "\n")
        if self.verbose and cause is not error:
            self.warn("".join(traceback.format_exception(cause)).rstrip())
        self.warn(error_text(error))


def error_text(error: EdgetrainError) -> str:
    """What, why, and after a blank line what to do."""
    lines = [f"error: {error.what}"]
    if error.why:
        lines.append(f"why: {error.why}")
    if error.fix:
        lines += ["", f"hint: {error.fix}"]
    return "\n".join(lines)


def _has_switch(words: Sequence[str], letter: str, name: str) -> bool:
    """Whether a switch is given: `--verbose`, `-v`, or `-v` among others, as in `-vh`."""
    short = (word[1:] for word in words if word.startswith("-") and not word.startswith("--"))
    return name in words or any(letter in letters for letters in short)
