"""SI inside, human sizes at the edge. `2GB` is 2·10⁹ bytes, `2GiB` is 2³⁰·2; both are echoed back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NewType

from edgetrain.errors import UsageError

Bytes = NewType("Bytes", int)
Seconds = NewType("Seconds", float)
Joules = NewType("Joules", float)
Watts = NewType("Watts", float)

_BYTE_UNITS: Mapping[str, int] = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SECOND_UNITS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
_JOULE_UNITS: Mapping[str, float] = {"uj": 1e-6, "mj": 1e-3, "": 1.0, "j": 1.0, "kj": 1e3, "wh": 3600.0}

_MOST_BYTES = 10**18
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*\Z")


def _parse(text: str, units: Mapping[str, float], what: str, examples: str) -> float:
    match = _QUANTITY.match(text)
    if match is None or match[2].lower() not in units:
        raise UsageError(f"`{text}` is not {what}", fix=f"write it like {examples}")
    return float(match[1]) * units[match[2].lower()]


def parse_bytes(text: str) -> Bytes:
    """`"2GB"`, `"512 KiB"` or `"4096"` as bytes. Raises `UsageError` for anything else."""
    value = _parse(text, _BYTE_UNITS, "a size", "`300MB` (10⁶ bytes), `256KiB` (2¹⁰ bytes) or `4096`")
    if value > _MOST_BYTES:
        raise UsageError(f"`{text}` is more than any machine has", fix="write a size of at most `1000000TB`")
    return Bytes(round(value))


def parse_seconds(text: str) -> Seconds:
    """`"50 ms"`, `"2min"` or `"1.5"` as seconds."""
    return Seconds(_parse(text, _SECOND_UNITS, "a time", "`50ms`, `1.5s` or `10min`"))


def parse_joules(text: str) -> Joules:
    """`"30mJ"`, `"2.5J"` or `"1Wh"` as joules."""
    return Joules(_parse(text, _JOULE_UNITS, "an energy", "`30mJ`, `2.5J` or `1Wh`"))


def show_bytes(count: int) -> str:
    """A size a person can type back: the decimal unit with at most three digits after the point."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.4g}{unit}" if count / size < 1000 else f"{count / size:.0f}{unit}"
    return f"{count}B"


def show_bytes_both(count: int) -> str:
    """A size in decimal and binary units, as sizes are echoed: `2GB (1.863GiB)`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{show_bytes(count)} ({count / size:.4g}{unit})"
    return f"{count}B"


def show_bytes_up(count: int) -> str:
    """`show_bytes`, rounded up: a budget copied from a message must be enough."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            thousandths = -(-count * 1000 // size)
            return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + unit
    return f"{count}B"


def show_seconds(seconds: float) -> str:
    """A duration for people: `3.1 s`, `12 ms`, `2 min 5 s`."""
    if seconds >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} µs"


def show_joules(joules: float) -> str:
    """An energy for people: `2.5 J`, `30 mJ`."""
    if joules >= 1000:
        return f"{joules / 1000:.3g} kJ"
    if joules >= 1:
        return f"{joules:.3g} J"
    if joules >= 1e-3:
        return f"{joules * 1e3:.3g} mJ"
    return f"{joules * 1e6:.3g} µJ"


def show_grams(grams: float) -> str:
    """A mass for people: `12 g`, `3.4 mg`, `56 µg`."""
    for unit, size in (("kg", 1e3), ("g", 1.0), ("mg", 1e-3), ("µg", 1e-6)):
        if grams >= size:
            return f"{grams / size:.3g} {unit}"
    return f"{grams * 1e9:.3g} ng"
