"""Claims about noise and time."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.augment.signals import add_noise, shift_time, shift_time_randomly


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_noise_is_a_share_of_the_samples_own_spread(scale: float) -> None:
    sample = (np.random.default_rng(0).normal(5, 1, (3, 4000)) * scale).astype(np.float32)
    noise = add_noise(sample, 0.1, np.random.default_rng(1)) - sample
    assert noise.std() == pytest.approx(0.1 * sample.std(), rel=0.05)
    assert abs(noise.mean()) < 0.01 * sample.std()
    assert noise.dtype == np.float32


def test_a_later_series_repeats_its_first_step() -> None:
    series = np.arange(10.0).reshape(2, 5)
    np.testing.assert_array_equal(shift_time(series, 2), [[0, 0, 0, 1, 2], [5, 5, 5, 6, 7]])
    np.testing.assert_array_equal(shift_time(series, -1), [[1, 2, 3, 4, 4], [6, 7, 8, 9, 9]])
    np.testing.assert_array_equal(shift_time(series, 0), series)


def test_time_moves_no_further_than_its_share() -> None:
    series, random = np.arange(20.0)[np.newaxis], np.random.default_rng(0)
    starts = {float(shift_time_randomly(series, 0.1, random)[0, 10]) for _ in range(100)}
    assert starts == {8.0, 9.0, 10.0, 11.0, 12.0}
