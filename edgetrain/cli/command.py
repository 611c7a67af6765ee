"""What a verb is: flags in a table, from which the parser, the help text and the close matches all come.

The help is written here and not by argparse, whose layout changes between versions of Python: what people read is
kept in golden files.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from edgetrain.cli.other_words import meant_for_flag
from edgetrain.errors import UsageError
from edgetrain.schema import close_to

if TYPE_CHECKING:
    from edgetrain.cli.console import Console

_WIDTH = 100
_NO_LIMIT = 1 << 30


def to_path(text: str) -> Path:
    """Of a flag. Raises `UsageError` for none: it would mean the working directory."""
    if not text.strip():
        raise UsageError("a flag that names a file or folder is empty", fix="give its path, or leave the flag out")
    return Path(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """An option. Without a `metavar` it is a switch. `parse` turns its text into a value, or raises `UsageError`."""

    name: str  # "--budget"; the value is `arguments.budget`
    help: str
    short: str = ""  # "-q"
    metavar: str = ""
    parse: Callable[[str], object] = str

    @property
    def spelling(self) -> str:
        names = f"{self.short}, {self.name}" if self.short else self.name
        return f"{names} {self.metavar}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb. `run` gets the parsed arguments (`words` holds the positional ones) and returns the exit code."""

    name: str
    summary: str
    description: str
    words: str = ""  # how the positional arguments are written in the usage line
    least_words: int = 0
    most_words: int = _NO_LIMIT
    flags: tuple[Flag, ...] = ()
    examples: tuple[str, ...]
    run: Callable[[argparse.Namespace, Console], int]

    @property
    def all_flags(self) -> tuple[Flag, ...]:
        return (*self.flags, *COMMON_FLAGS)


COMMON_FLAGS = (
    Flag(name="--json", help="print one JSON object to standard output, an error too"),
    Flag(name="--verbose", short="-v", help="say more, with tracebacks of unexpected errors"),
    Flag(name="--quiet", short="-q", help="say nothing but warnings and errors"),
    Flag(name="--help", short="-h", help="show this text"),
)


class _Parser(argparse.ArgumentParser):
    """Tells its errors as ours."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, fix=f"see `{self.prog} --help`")


def parse_arguments(verb: Verb, words: Sequence[str]) -> argparse.Namespace:
    """Flags and words in any order. Raises `UsageError` with the close matches of an unknown flag."""
    parser = _Parser(prog=f"edgetrain {verb.name}", add_help=False, allow_abbrev=False)
    for flag in verb.all_flags:
        names = [name for name in (flag.short, flag.name) if name]
        if flag.metavar:
            parser.add_argument(*names, metavar=flag.metavar, type=flag.parse, default=None)
        else:
            parser.add_argument(*names, action="store_true")
    parser.add_argument("words", nargs="*")
    arguments, unknown = parser.parse_known_intermixed_args(list(words))
    if unknown:
        name = unknown[0].partition("=")[0]
        known = [spelling for flag in verb.all_flags for spelling in (flag.short, flag.name) if spelling]
        meant = meant_for_flag(unknown[0], words, known, takes_keys="key=value" in verb.words)
        raise UsageError(
            f"`edgetrain {verb.name}` has no flag `{name}`{'' if meant else close_to(name, known)}",
            fix=f"write `{meant}` instead" if meant else f"see `edgetrain {verb.name} --help`",
        )
    _check_words(verb, arguments.words)
    return arguments


def _check_words(verb: Verb, words: Sequence[str]) -> None:
    if len(words) < verb.least_words:
        raise UsageError(f"`edgetrain {verb.name}` needs {verb.words}", fix=f"like `{verb.examples[0]}`")
    if len(words) > verb.most_words:
        raise UsageError(
            f"`edgetrain {verb.name}` does not know what to do with `{words[verb.most_words]}`",
            fix=f"see `edgetrain {verb.name} --help`",
        )


def help_of(verb: Verb) -> str:
    """The help text; it ends in commands that can be pasted."""
    usage = " ".join(part for part in ("usage: edgetrain", verb.name, verb.words, "[options]") if part)
    rows = [(flag.spelling, flag.help) for flag in verb.all_flags]
    parts = [
        usage,
        *(textwrap.fill(paragraph, _WIDTH) for paragraph in verb.description.split("\n\n")),
        "options:\n" + table(rows),
        "examples:\n" + "\n".join(f"  {example}" for example in verb.examples),
    ]
    return "\n\n".join(parts) + "\n"


def table(rows: Sequence[tuple[str, str]], *, indent: int = 2) -> str:
    """Two columns; the second one wraps within its column."""
    width = max((len(left) for left, _ in rows), default=0)
    lines = []
    for left, right in rows:
        start = f"{' ' * indent}{left:<{width}}  "
        wrapped = textwrap.wrap(right, max(20, _WIDTH - len(start))) or [""]
        lines.append((start + wrapped[0]).rstrip())
        lines += [" " * len(start) + more for more in wrapped[1:]]
    return "\n".join(lines)
