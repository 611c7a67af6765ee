"""Where the command line talks: data to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TextIO

from edgetrain.cli.colour import with_colour
from edgetrain.errors import EdgetrainError
from edgetrain.locate import uses_colour


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
        self.colour = uses_colour(is_terminal=sys.stderr.isatty())

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
            with self._beside_bars():
                sys.stdout.write(text)
                sys.stdout.flush()
        except BrokenPipeError as error:
            raise StdoutClosedError from error

    def results_are_seen(self) -> bool:
        """Whether standard output is on a screen, where a bar would be torn apart by it."""
        return not self.as_json and sys.stdout.isatty()

    def say(self, line: str) -> None:
        """Talk that `--quiet` turns off."""
        if not self.quiet:
            self.tell(line)

    def warn(self, line: str) -> None:
        """Talk that `--quiet` leaves: what changes how the result is to be read."""
        self.tell(f"warning: {line}")

    def tell(self, text: str) -> None:
        """Talk as it is, `--quiet` or not."""
        with self._beside_bars():
            self.talk.write((with_colour(text) if self.colour else text) + "\n")
            self.talk.flush()

    def _beside_bars(self) -> AbstractContextManager[None]:
        """Takes progress bars off the screen and draws them again: a message never ends a bar's line."""
        if "tqdm" not in sys.modules or not self.talk.isatty():
            return contextlib.nullcontext()
        from tqdm import tqdm

        beside: AbstractContextManager[None] = tqdm.external_write_mode(file=self.talk)
        return beside

    def fail(self, error: EdgetrainError, cause: BaseException) -> None:
        """The error in words, and with `--json` also as an object on standard output."""
        if self.as_json:
            with contextlib.suppress(StdoutClosedError):
                self.data(json.dumps(error.to_json()) + "\n")
        if self.verbose and cause is not error:
            self.tell("".join(traceback.format_exception(cause)).rstrip())
        self.tell(error_text(error))


class LogLines(logging.Handler):
    """Log messages as lines of the console's talk: `warning: ...`."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(ValueError):  # the stream is closed: nobody reads it any more
            self._console.tell(self.format(record))


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
