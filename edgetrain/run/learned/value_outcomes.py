"""How far predicted values are from true ones, over the range of the true ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgetrain.run.engines.engine import Array

QUANTILES = 5
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """The true values in [low, high) (the last: [low, high]), and how far predictions are from them."""

    low: float
    high: float
    count: int
    mean_absolute_error: float
    bias: float  # mean of predicted minus true


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOutcomes:
    """In the units of the data. `points` are pairs of true and predicted values, spread evenly over the part."""

    count: int
    mean_absolute_error: float
    root_mean_squared_error: float
    bias: float
    explained: float | None  # R²: 1 is perfect, 0 is no better than always the mean; None where all values are equal
    quantiles: tuple[Quantile, ...]
    points: tuple[tuple[float, float], ...]


class ValueTally:
    """Grows batch by batch. The labels are in memory anyway, so their quantiles are exact and known from the start."""

    def __init__(self, labels: Array) -> None:
        values = np.asarray(labels, np.float64).reshape(-1)
        self._edges = np.unique(np.quantile(values, np.linspace(0, 1, QUANTILES + 1)))
        bins = max(1, len(self._edges) - 1)
        self._mean = float(values.mean())
        self._spread = float(np.square(values - self._mean).sum())
        self._every = max(1, math.ceil(len(values) / _MOST_POINTS))
        self._seen = 0
        self._counts = np.zeros(bins, np.int64)
        self._absolute = np.zeros(bins)
        self._signed = np.zeros(bins)
        self._squared = 0.0
        self._points: list[tuple[float, float]] = []

    def add(self, actual: Array, predicted: Array) -> None:
        true, guess = (np.asarray(a, np.float64).reshape(-1) for a in (actual, predicted))
        error = guess - true
        bins = np.clip(np.searchsorted(self._edges, true, side="right") - 1, 0, len(self._counts) - 1)
        self._counts += np.bincount(bins, minlength=len(self._counts))
        self._absolute += np.bincount(bins, weights=np.abs(error), minlength=len(self._counts))
        self._signed += np.bincount(bins, weights=error, minlength=len(self._counts))
        self._squared += float(np.square(error).sum())
        first = -self._seen % self._every
        self._points += zip(true[first :: self._every].tolist(), guess[first :: self._every].tolist(), strict=True)
        self._seen += len(true)

    def finish(self) -> ValueOutcomes:
        count = int(self._counts.sum())
        return ValueOutcomes(
            count=count,
            mean_absolute_error=float(self._absolute.sum()) / count,
            root_mean_squared_error=math.sqrt(self._squared / count),
            bias=float(self._signed.sum()) / count,
            explained=1.0 - self._squared / self._spread if self._spread > 0 else None,
            quantiles=tuple(self._quantile(i) for i in range(len(self._counts)) if self._counts[i]),
            points=tuple(self._points),
        )

    def _quantile(self, index: int) -> Quantile:
        count = int(self._counts[index])
        return Quantile(
            low=float(self._edges[index]),
            high=float(self._edges[min(index + 1, len(self._edges) - 1)]),
            count=count,
            mean_absolute_error=float(self._absolute[index]) / count,
            bias=float(self._signed[index]) / count,
        )
