"""Numbers to run a kernel on: the same for every candidate, laid out as in a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
ALIGNMENT = 64  # of every tensor in a program's arena


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    shape: tuple[int, ...]
    dtype: str


def parameters_of(function: Any) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(shape=tuple(int(extent) for extent in p.ty.shape), dtype=str(p.ty.dtype)) for p in function.params
    )


def aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    buffer = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + nbytes]


def aligned_copy(array: Array) -> Array:
    copy = aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def draw(parameters: Sequence[Parameter], *, is_positive: bool) -> list[Array]:
    """Random numbers: around zero, or between 1/4 and 5/4 where roots and logarithms ask for it.

    Whole numbers are 0 or 1: they are indices and labels, and every tensor has a second element.
    """
    random = np.random.default_rng(20_250_101)
    arrays = []
    for parameter in parameters:
        array = aligned(int(np.prod(parameter.shape, dtype=np.int64)) * _itemsize(parameter)).view(_dtype(parameter))
        array = array.reshape(parameter.shape)
        if array.dtype.kind == "f":
            values = random.random(parameter.shape, np.float32)
            array[...] = values + np.float32(0.25) if is_positive else 2 * values - 1
        else:
            array[...] = random.integers(0, 2, parameter.shape)
        arrays.append(array)
    return arrays


def _dtype(parameter: Parameter) -> np.dtype[Any]:
    """As many bytes as the type takes: what NumPy has no name for is filled with whole numbers."""
    try:
        return np.dtype(parameter.dtype)
    except TypeError:
        return np.dtype(np.uint16)


def _itemsize(parameter: Parameter) -> int:
    return _dtype(parameter).itemsize


def largest_error(results: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest difference as a share of the largest element; infinite where one is a number and one is not."""
    worst = 0.0
    for result, reference in zip(results, expected, strict=True):
        if result.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(result, reference) else np.inf)
            continue
        one, other = result.astype(np.float64), reference.astype(np.float64)
        if not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return np.inf
        finite = np.isfinite(other)
        if finite.any():
            apart = np.abs(one[finite] - other[finite]).max()
            worst = max(worst, float(apart / max(np.abs(other[finite]).max(), 1e-30)))
    return worst
