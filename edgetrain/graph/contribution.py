"""Contribution analysis: how much training each tensor would lower the loss, before any training. Pure NumPy.

To first order a step of size η along −∂L/∂w lowers the loss by η·‖∂L/∂w‖², tensor by tensor, so ‖∂L/∂w‖² is what a
tensor is worth, and worths add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


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
