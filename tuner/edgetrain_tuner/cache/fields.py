"""Readers for JSON that a stranger wrote: each takes a value and returns it, or raises `Wrong` with what was expected.

A closed table of readers for each object; what is unknown, missing or out of range is collected, not raised one by one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

Reader = Callable[[object], Any]

_SHOWN_CHARACTERS = 40


class Wrong(Exception):
    """The message says what was expected."""


def parse_json(text: str) -> object:
    """JSON without what its writers disagree about: no NaN, no infinity, no key twice. Raises `Wrong`."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object_without_repeats)
    except json.JSONDecodeError as error:
        raise Wrong(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Wrong("JSON that is nested too deeply") from None
    except ValueError as error:  # a whole number with thousands of digits
        raise Wrong(f"not JSON we read: {error}") from None


def canonical_json(value: object) -> str:
    """One text for each value: sorted keys, no spaces, ASCII. Raises `ValueError` for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _refuse_constant(name: str) -> NoReturn:
    raise Wrong(f"`{name}`, which JSON does not have")


def _object_without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Wrong("an object that has a key twice")
    return result


def integer(least: int, most: int) -> Reader:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise Wrong(f"a whole number from {least} to {most}")
        return value

    return read


def number(least: float, most: float) -> Reader:
    """A finite number, as a float: `1` and `1.0` are one value and get one text."""

    def read(value: object) -> float:
        if type(value) not in (int, float) or not least <= value <= most:  # type: ignore[operator]
            raise Wrong(f"a number from {least:g} to {most:g}")
        result = float(value)  # type: ignore[arg-type]
        if not math.isfinite(result):
            raise Wrong("a finite number")
        return result + 0.0  # -0.0 becomes 0.0

    return read


def text(pattern: str, words: str) -> Reader:
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise Wrong(words)
        return value

    return read


def choice(*options: str) -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in options:
            raise Wrong(f"one of {', '.join(options)}")
        return value

    return read


def list_of(item: Reader, *, most: int) -> Reader:
    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise Wrong(f"a list of at most {most}")
        try:
            return tuple(item(element) for element in value)
        except Wrong as wrong:
            raise Wrong(f"a list of at most {most}, each {wrong}") from None

    return read


def table_of(name: Reader, item: Reader, *, most: int) -> Reader:
    """An object whose keys are free names."""

    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > most:
            raise Wrong(f"an object with at most {most} keys")
        try:
            return {name(key): item(value[key]) for key in sorted(value)}
        except Wrong as wrong:
            raise Wrong(f"an object with at most {most} keys, each {wrong}") from None

    return read


def read_object(
    value: object,
    readers: Mapping[str, Reader],
    *,
    where: str,
    mistakes: list[str],
    optional: frozenset[str] = frozenset(),
) -> dict[str, Any] | None:
    """The fields of an object, read; None when anything is wrong, with a sentence for each thing in `mistakes`."""
    if not isinstance(value, dict):
        mistakes.append(f"`{where}` is {_shown(value)}, expected an object")
        return None
    before = len(mistakes)
    prefix = f"{where}." if where else ""
    mistakes += [f"`{prefix}{_clipped(key)}` is not a known key" for key in value if key not in readers]
    fields: dict[str, Any] = {}
    for key, reader in readers.items():
        if key not in value:
            if key not in optional:
                mistakes.append(f"`{prefix}{key}` is missing")
            continue
        try:
            fields[key] = reader(value[key])
        except Wrong as wrong:
            mistakes.append(f"`{prefix}{key}` is {_shown(value[key])}, expected {wrong}")
    return fields if len(mistakes) == before else None


def _clipped(words: str) -> str:
    """Safe to print: what a stranger wrote must not move the cursor of whoever reads the message."""
    plain = words.encode("ascii", "backslashreplace").decode()
    plain = "".join(c if c.isprintable() else "?" for c in plain)
    return plain if len(plain) <= _SHOWN_CHARACTERS else plain[:_SHOWN_CHARACTERS] + "…"


def _shown(value: object) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case str():
            return f'"{_clipped(value)}"'
    return _clipped(str(value))
