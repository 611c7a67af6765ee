"""Whether a model that is 90 % sure is right in 90 % of the cases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgetrain.run.engines.engine import Array

BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """The predictions whose confidence is in (low, high]; the first bin includes 0."""

    low: float
    high: float
    count: int
    confidence: float | None  # mean; None where the bin is empty
    accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Reliability of the probability that the model gives to the class it predicts.

    `expected_error` is the mean distance of accuracy and confidence over the bins, weighted by their counts (ECE).
    """

    bins: tuple[Bin, ...]
    expected_error: float


class CalibrationTally:
    """Grows batch by batch: three numbers for each bin."""

    def __init__(self) -> None:
        self._counts = np.zeros(BINS, np.int64)
        self._confidences = np.zeros(BINS)
        self._hits = np.zeros(BINS, np.int64)

    def add(self, confidences: Array, is_right: Array) -> None:
        """One confidence in [0, 1] for each prediction, and whether it was right."""
        confidences = np.asarray(confidences, np.float64).reshape(-1)
        bins = np.clip(np.ceil(confidences * BINS).astype(np.int64) - 1, 0, BINS - 1)
        self._counts += np.bincount(bins, minlength=BINS)
        self._confidences += np.bincount(bins, weights=confidences, minlength=BINS)
        self._hits += np.bincount(bins[np.asarray(is_right, bool).reshape(-1)], minlength=BINS)

    def finish(self) -> Calibration | None:
        """None where nothing was counted."""
        total = int(self._counts.sum())
        if not total:
            return None
        distance = float(np.abs(self._hits - self._confidences).sum()) / total
        return Calibration(bins=tuple(map(self._bin, range(BINS))), expected_error=distance)

    def _bin(self, number: int) -> Bin:
        count = int(self._counts[number])
        return Bin(
            low=number / BINS,
            high=(number + 1) / BINS,
            count=count,
            confidence=float(self._confidences[number]) / count if count else None,
            accuracy=int(self._hits[number]) / count if count else None,
        )
