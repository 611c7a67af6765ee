"""From what a function gives back to what it was given, by bisection over all numbers of a type.

The function grows with its number or falls with it, in steps, too, as rounding does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgetrain.model.model import Array

_LARGEST_EXACT = 2**53  # whole numbers up to here are float64 as well

Compute = Callable[[Array], Array]


def range_of(dtype: str) -> tuple[float, float]:
    """The lowest and the highest finite number."""
    if dtype == "bool":
        return 0, 1
    held: Any = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    return float(held.min), float(held.max)


def bisected(asked_least: Array, asked_most: Array, dtype: str, compute: Compute) -> tuple[Array, Array] | None:
    """The lowest and the highest numbers of the type from which comes what is asked for; None where one has none."""
    ends, number = _numbers_of(np.dtype(dtype))
    first, last = (np.full(asked_least.shape, end) for end in ends)
    falls = compute(number(last)) < compute(number(first))

    def rising(keys: Array) -> Array:
        """As `compute`, with its sign changed where it falls."""
        results = compute(number(keys)).astype(np.float64)
        return np.where(falls, -results, results)

    lowest, highest = np.where(falls, -asked_most, asked_least), np.where(falls, -asked_least, asked_most)
    least = _first_key(first, last, lambda keys: rising(keys) >= lowest)
    most = _first_key(first, last, lambda keys: rising(keys) > highest) - 1
    if np.any(least > most):
        return None
    # At an end that is flat, as a clip makes it, whatever lies beyond is in range as well. Another end is the type's.
    type_least, type_most = range_of(dtype)
    floor = np.where(np.isneginf(lowest) | (rising(first) == rising(first + 1)), -np.inf, type_least)
    ceiling = np.where(np.isposinf(highest) | (rising(last) == rising(last - 1)), np.inf, type_most)
    return np.where(least == first, floor, number(least)), np.where(most == last, ceiling, number(most))


def _first_key(first: Array, last: Array, is_reached: Callable[[Array], Array]) -> Array:
    """Of each element, the first key from which on it is reached; the one behind the last where it never is."""
    below, above = first, last + 1
    while np.any(is_open := below < above):
        middle = (below >> 1) + (above >> 1) + (below & above & 1)  # their sum may be too large for the type
        reached = is_reached(np.minimum(middle, last))
        above = np.where(is_open & reached, middle, above)
        below = np.where(is_open & ~reached, middle + 1, below)
    return above


def _numbers_of(dtype: np.dtype[Any]) -> tuple[tuple[int, int], Callable[[Array], Array]]:
    """The numbers of a type in their order: the first and the last key, and the number of a key."""
    if dtype.kind in "iu":
        held = np.iinfo(dtype)
        ends = max(int(held.min), -_LARGEST_EXACT), min(int(held.max), _LARGEST_EXACT)
        return ends, lambda keys: keys.astype(np.float64)
    bits = np.dtype(f"i{dtype.itemsize}")
    most = int(np.array(np.finfo(dtype).max, dtype).view(bits))
    return (-most, most), lambda keys: np.copysign(np.abs(keys).astype(bits).view(dtype), keys).astype(dtype)
