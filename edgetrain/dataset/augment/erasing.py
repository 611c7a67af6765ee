"""Parts of a sample wiped out: what is left has to be enough."""

from __future__ import annotations

import numpy as np

from edgetrain.dataset.samples import Array


def cut_out_randomly(sample: Array, share: float, random: np.random.Generator) -> Array:
    """A rectangle, so long as that share of each of the last two axes, becomes the mean of its channel."""
    return _wiped(sample, share, random, axes=(-2, -1))


def cut_out_time_randomly(sample: Array, share: float, random: np.random.Generator) -> Array:
    """A stretch of time, so long as that share of it, becomes the mean of each channel."""
    return _wiped(sample, share, random, axes=(-1,))


def _wiped(sample: Array, share: float, random: np.random.Generator, *, axes: tuple[int, ...]) -> Array:
    where: list[slice] = [slice(None)] * sample.ndim
    for axis in axes:
        length = round(share * sample.shape[axis])
        start = int(random.integers(sample.shape[axis] - length + 1))
        where[axis] = slice(start, start + length)
    wiped = sample.copy()
    wiped[tuple(where)] = sample.mean(axis=axes, keepdims=True)
    return wiped
