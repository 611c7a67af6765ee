"""Contribution analysis: how much training each tensor would lower the loss, before any training. Pure NumPy.

To first order a step of size η along −∂L/∂w lowers the loss by η·‖∂L/∂w‖², tensor by tensor, so ‖∂L/∂w‖² is what a
tensor is worth, and worths add up. Two ways to get it: from gradients, where one backward pass over everything fits, or
from forward passes alone, where it does not: the mean of (dL in a random direction)² is ‖∂L/∂w‖² as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Half the step of the central difference, relative to the tensor's own size: losses of float32 programs are good to
# about 1e-7, so a smaller step measures rounding, a larger one the curvature.
RELATIVE_STEP = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What training each tensor is worth; for some weights also what each of their outputs is."""

    tensors: Mapping[str, float]
    rows: Mapping[str, tuple[float, ...]]


def gradient_scores(gradients: Mapping[str, Array]) -> dict[str, float]:
    """‖g‖² of each gradient, a mean over training batches: what a program built with `accumulate` leaves behind."""
    return {name: float(np.square(g.astype(np.float64)).sum()) for name, g in gradients.items()}


def row_scores(gradients: Mapping[str, Array], axes: Mapping[str, int]) -> dict[str, tuple[float, ...]]:
    """‖g‖² of each output of each weight in `axes`, which says what axis counts outputs. Rows sum to the whole."""
    found = {}
    for name, axis in axes.items():
        by_output = np.moveaxis(gradients[name].astype(np.float64), axis, 0)
        found[name] = tuple(np.square(by_output).reshape(len(by_output), -1).sum(axis=1).tolist())
    return found


def forward_scores(
    loss: Callable[[], float],
    parameters: Mapping[str, Array],
    names: Sequence[str],
    *,
    probes: int = 8,
    seed: int = 0,
    relative_step: float = RELATIVE_STEP,
) -> dict[str, float]:
    """An estimate of ‖∂L/∂w‖² for each name, from 2 · `probes` calls of `loss` and no backward pass.

    `loss` evaluates the model with what `parameters` hold at the call; each array is changed in place meanwhile and
    holds its old bytes afterwards. The estimate has no bias but that of the step, and a relative deviation of about
    √(2 / probes).
    """
    return {
        name: _squared_slope(loss, parameters[name], _generator(seed, name), probes, relative_step) for name in names
    }


def _generator(seed: int, name: str) -> np.random.Generator:
    """Its own stream for each tensor: leaving one out changes no other's score."""
    return np.random.default_rng([seed, crc32(name.encode())])


def _squared_slope(
    loss: Callable[[], float], value: Array, rng: np.random.Generator, probes: int, relative_step: float
) -> float:
    before = value.copy()
    size = float(np.sqrt(np.square(before.astype(np.float64)).mean())) if before.size else 0.0
    step = relative_step * (size or relative_step)  # a tensor of zeros (a fresh bias) has no size to go by
    squares = []
    try:
        for _ in range(probes):
            direction = rng.choice((-1.0, 1.0), before.shape)  # of unit variance, and of one length each time
            ends = []
            for sign in (1.0, -1.0):
                value[...] = before + sign * step * direction
                ends.append(loss())
            squares.append(((ends[0] - ends[1]) / (2 * step)) ** 2)
    finally:
        value[...] = before
    return float(np.mean(squares))
