"""Frozen dataclasses from the plain data that JSON gives, each value checked against its annotation."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from edgetrain.schema import LARGEST_INTEGER

T = TypeVar("T")

_WORDS: Mapping[type, str] = {int: "a whole number", float: "a finite number", str: "text", bool: "`true` or `false`"}


def record_from_plain(kind: type[T], data: object, *, where: str = "") -> T:
    """`data` as a `kind`, a dataclass. Keys that it has no field for are passed over: a later version may write more.

    Raises `ValueError` naming the first value that is missing or of another type.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"`{where or 'the file'}` is no table")
    hints = typing.get_type_hints(kind)
    values = {}
    for field in dataclasses.fields(typing.cast(Any, kind)):
        key = f"{where}.{field.name}" if where else field.name
        if field.name in data:
            values[field.name] = _value(hints[field.name], data[field.name], key)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"`{key}` is missing")
    return kind(**values)


def _value(kind: Any, value: object, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        inner = [part for part in arguments if part is not type(None)]
        if (value is None and len(inner) < len(arguments)) or len(inner) != 1:
            return value  # absent, or any JSON
        return _value(inner[0], value, where)
    if dataclasses.is_dataclass(kind):
        return record_from_plain(typing.cast(type, kind), value, where=where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"`{where}` is no list")
        return tuple(_value(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise ValueError(f"`{where}` is no table")
        return {name: _value(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    return _scalar(kind, value, where)


def _is_finite(value: float) -> bool:
    """Not so for a whole number that no float can hold: JSON has such, too."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _scalar(kind: Any, value: object, where: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number and _is_finite(typing.cast(float, value)):
        return value
    if kind is int and is_number and abs(typing.cast(float, value)) > LARGEST_INTEGER:
        raise ValueError(f"`{where}` is `{value}`, expected a whole number of at most 63 bits")
    if kind is not float and type(value) is kind:
        return value
    raise ValueError(f"`{where}` is `{value}`, expected {_WORDS[kind]}")
