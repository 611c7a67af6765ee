"""Claims about what is wiped out."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.augment.erasing import cut_out_randomly, cut_out_time_randomly

SAMPLE = np.random.default_rng(0).random((2, 10, 20), dtype=np.float32)


@pytest.mark.parametrize("seed", range(10))
def test_cutout_blanks_one_rectangle_of_its_share(seed: int) -> None:
    found = cut_out_randomly(SAMPLE, 0.3, np.random.default_rng(seed))
    changed = found != SAMPLE
    rows, columns = np.flatnonzero(changed[0].any(axis=1)), np.flatnonzero(changed[0].any(axis=0))
    assert (len(rows), len(columns)) == (3, 6)
    assert np.ptp(rows) == 2
    assert np.ptp(columns) == 5
    for before, after, is_changed in zip(SAMPLE, found, changed, strict=True):
        np.testing.assert_allclose(after[is_changed], before.mean(), rtol=1e-6)
        assert np.array_equal(is_changed, changed[0])


def test_cutout_reaches_every_place() -> None:
    random, changed = np.random.default_rng(0), np.zeros(SAMPLE.shape, bool)
    for _ in range(3000):
        changed |= cut_out_randomly(SAMPLE, 0.2, random) != SAMPLE
    assert changed.all()


def test_a_series_loses_a_stretch_of_time_in_all_channels() -> None:
    series = SAMPLE[0]
    changed = cut_out_time_randomly(series, 0.25, np.random.default_rng(3)) != series
    steps = np.flatnonzero(changed.any(axis=0))
    assert len(steps) == 5
    assert np.ptp(steps) == 4
    assert changed[:, steps].all()
