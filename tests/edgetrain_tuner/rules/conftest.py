"""Fixtures of the rules' tests."""

from __future__ import annotations

import pytest

from edgetrain_tuner.rules import blocking, winograd, winograd_tiling, winograd_weights_tiling


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Winograd's rules take what they would leave to others: a kernel that is too small, or faster the direct way."""
    monkeypatch.setattr(winograd, "MINIMUM_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(winograd, "is_faster", lambda *_: True)
    for tiling in (winograd_tiling, winograd_weights_tiling):
        monkeypatch.setattr(tiling, "room", lambda _: blocking.MOST_SCRATCH_BYTES)
    monkeypatch.setattr(blocking, "MINIMUM_PARALLEL_MULTIPLY_ADDS", 0)
