"""How numbers are written on a page."""

from __future__ import annotations

from collections.abc import Callable

from edgetrain.drawing.axes import ticks
from edgetrain.report.charts.plot import number_labels

_SHARES = frozenset({"accuracy", "f1", "top-2", "top-3", "top-5", "top-10", "error-rate"})


def percent(share: float, digits: int = 1) -> str:
    """`97.5 %`, with a space that does not break."""
    return f"{100 * share:.{digits}f}\u00a0%"


def metric_value(name: str, value: float) -> str:
    """Shares as per cent, anything else as a number."""
    return percent(value) if name in _SHARES else f"{value:.4g}"


def words(name: str) -> str:
    return name.replace("_", " ")


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def axis_of(name: str) -> Callable[[float, float], tuple[tuple[float, str], ...]]:
    """The labels of a metric's axis."""
    return _share_labels if name in _SHARES else number_labels


def _share_labels(low: float, high: float) -> tuple[tuple[float, str], ...]:
    digits = 0 if high - low > 0.05 else 1
    return tuple((value, percent(value, digits)) for value in ticks(low, min(high, 1.0)))
