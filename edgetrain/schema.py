"""Typed tables: a frozen dataclass says what a TOML table may hold; `read_table` checks it and collects every mistake.

A key's type comes from the annotation, its default and range from `setting(...)`, so that each is written once:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Train:
        batch: int = setting(32, minimum=1)
        loss: str = setting("cross-entropy", choices=("cross-entropy", "mse"))

Mistakes are sentences; the caller raises once with all of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NewType, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a value must satisfy beyond its type. Ranges apply to each element of a list."""

    minimum: float | None = None
    above: float | None = None  # as minimum, the bound itself excluded
    maximum: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    length: int | None = None  # of a list that is not empty


_REQUIRED = object()
LARGEST_INTEGER = 2**63 - 1
_LARGEST_NUMBER = 3.4028234e38


def setting(
    default: Any = _REQUIRED,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    length: int | None = None,
) -> Any:
    """A dataclass field with limits; without a default the key is required."""
    limits = Limits(minimum=minimum, above=above, maximum=maximum, below=below, choices=choices, length=length)
    metadata = {"limits": limits}
    if default is _REQUIRED:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, Mapping):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class _Wrong(Exception):
    """A value of the wrong type; the message says what was expected."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong("text")
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong("a whole number")
    if abs(value) > LARGEST_INTEGER:
        raise _Wrong("a whole number of at most 63 bits")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong("a finite number")
    if isinstance(value, float) and not math.isfinite(value):  # asked of a whole number, it may be too large to answer
        raise _Wrong("a finite number")
    if abs(value) > _LARGEST_NUMBER:  # kernels compute in 32 bits, where it would be infinite
        raise _Wrong("a number of at most 3.4e38")
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong("`true` or `false`")
    return value


def _tuple_of(item: Callable[[object], Any], plural: str) -> Callable[[object], tuple[Any, ...]]:
    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _Wrong(f"a list of {plural}")
        try:
            return tuple(item(element) for element in value)
        except _Wrong:
            raise _Wrong(f"a list of {plural}") from None

    return read


def _word_or_numbers(value: object) -> str | tuple[float, ...]:
    if isinstance(value, str):
        return value
    try:
        return _tuple_of(_number, "numbers")(value)
    except _Wrong:
        raise _Wrong("a word or a list of numbers") from None


def _shapes(value: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, Mapping):
        raise _Wrong("a table of shapes, like `{ image = [3, 224, 224] }`")
    read = _tuple_of(_integer, "whole numbers")
    shapes = {str(name): read(shape) for name, shape in value.items()}
    if any(size < 1 for shape in shapes.values() for size in shape):
        raise _Wrong("a table of shapes with sizes of 1 or more")
    return shapes


def _word_lists(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise _Wrong("a table of lists of texts")
    read = _tuple_of(_text, "texts")
    return {str(name): read(words) for name, words in value.items()}


_READERS: Mapping[Any, Callable[[object], Any]] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _flag,
    tuple[str, ...]: _tuple_of(_text, "texts"),
    tuple[int, ...]: _tuple_of(_integer, "whole numbers"),
    tuple[float, ...]: _tuple_of(_number, "numbers"),
    str | tuple[float, ...]: _word_or_numbers,
    Mapping[str, tuple[int, ...]]: _shapes,
    Mapping[str, tuple[str, ...]]: _word_lists,
}


def is_numeric(kind: Any) -> bool:
    """Whether a key of this type holds a number."""
    return _bare(kind)[0] in (int, float)


def close_to(word: str, known: Collection[str]) -> str:
    """` (did you mean ...?)` with the close matches of an unknown word, or nothing."""
    return _asked(difflib.get_close_matches(word, sorted(known), n=3, cutoff=0.5))


def _close_keys(key: str, where: str, known: Collection[str], elsewhere: Collection[str]) -> str:
    """As `close_to`, in whole keys. Where another table has a key of just this name, that is the one."""
    if same := sorted(other for other in elsewhere if other.rpartition(".")[2] == key):
        return _asked(same)
    return _asked([where + match for match in difflib.get_close_matches(key, sorted(known), n=3, cutoff=0.5)])


def _asked(matches: Sequence[str]) -> str:
    return f" (did you mean {' or '.join(f'`{match}`' for match in matches)}?)" if matches else ""


def read_table(
    kind: type[T],
    data: Mapping[str, object],
    *,
    where: str,
    mistakes: list[str],
    given: Mapping[str, Any] = types.MappingProxyType({}),
    elsewhere: Collection[str] = (),
) -> T | None:
    """The table as a `kind`; None when any of its keys is wrong, with a sentence for each added to `mistakes`.

    `given` holds the fields that the caller read itself, tables within the table for instance; `elsewhere` names the
    keys of other tables, with theirs.
    """
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, kind)) if f.name not in given}
    before = len(mistakes)
    for key in data:
        if key not in fields and key not in given:
            mistakes.append(f"`{where}{key}` is not a known key{_close_keys(key, where, (*fields, *given), elsewhere)}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            values[name] = read_value(
                hints[name], data[name], field.metadata.get("limits", Limits()), key=where + name, mistakes=mistakes
            )
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            mistakes.append(f"`{where}{name}` is missing")
    return kind(**values, **given) if len(mistakes) == before else None


def read_value(kind: Any, value: object, limits: Limits, *, key: str, mistakes: list[str]) -> Any:
    """The value as a `kind` within `limits`; what is wrong with it goes to `mistakes`."""
    bare, optional = _bare(kind)
    # TOML has no null; the word lets an override take a value back.
    if optional and (value is None or value == "none"):
        return None
    try:
        result = _READERS[bare](value)
    except _Wrong as wrong:
        mistakes.append(f"`{key}` is {_show(value)}, expected {wrong}")
        return None
    mistakes.extend(f"`{key}` is {_show(value)}, expected {broken}" for broken in _broken_limits(result, limits))
    return result


def _bare(kind: Any) -> tuple[Any, bool]:
    """A type without its `| None` and without `NewType`, and whether None was allowed."""
    optional = False
    if kind in _READERS:
        return kind, optional
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        (kind,) = (part for part in typing.get_args(kind) if part is not type(None))
        optional = True
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    return kind, optional


def _broken_limits(value: Any, limits: Limits) -> list[str]:
    items: Sequence[Any] = value if isinstance(value, tuple) else (value,)
    broken = []
    numbers = [item for item in items if isinstance(item, int | float)]
    bounds: tuple[tuple[float | None, Callable[[float, float], bool], str], ...] = (
        (limits.minimum, lambda number, bound: number >= bound, "{} or more"),
        (limits.above, lambda number, bound: number > bound, "more than {}"),
        (limits.maximum, lambda number, bound: number <= bound, "{} or less"),
        (limits.below, lambda number, bound: number < bound, "less than {}"),
    )
    for bound, holds, words in bounds:
        if bound is not None and not all(holds(number, bound) for number in numbers):
            broken.append(words.format(f"{bound:g}"))
    if limits.choices:
        for item in items:
            if isinstance(item, str) and item not in limits.choices:
                known = ", ".join(f"`{choice}`" for choice in limits.choices)
                broken.append(f"one of {known}{close_to(str(item), limits.choices)}")
    if limits.length is not None and isinstance(value, tuple) and len(value) not in (0, limits.length):
        broken.append(f"{limits.length} values")
    return broken


def _show(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else f"`{str(value).lower() if isinstance(value, bool) else value}`"
