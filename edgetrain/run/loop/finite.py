"""Whether parameters and state are still numbers. An update can ruin them without any loss that shows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgetrain.run.engines.engine import Array, Engine

_CHUNK_ELEMENTS = 1 << 13  # looking takes a byte for each: no more memory than a page or two


def finite_tensors(engine: Engine, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the tensors that hold floating-point numbers, all of them finite.

    Of untrained parameters: a model may hold infinities on purpose, in a mask that is added before a softmax.
    """
    return tuple(name for name in names if _is_floating(engine.tensor(name)) and is_finite(engine.tensor(name)))


def first_not_finite(engine: Engine, names: Sequence[str]) -> str | None:
    """The first of the tensors that holds NaN or infinity."""
    return next((name for name in names if not is_finite(engine.tensor(name))), None)


def is_finite(values: Array) -> bool:
    """Looks at one piece after another: what is checked may be as large as the memory."""
    flat = values.reshape(-1)
    pieces = range(0, flat.size, _CHUNK_ELEMENTS)
    return all(bool(np.isfinite(flat[start : start + _CHUNK_ELEMENTS]).all()) for start in pieces)


def _is_floating(values: Array) -> bool:
    return values.dtype.kind == "f"
