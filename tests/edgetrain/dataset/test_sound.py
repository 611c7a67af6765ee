"""Claims about sound that is read in pieces: the same as if it were read whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.samples import Array
from edgetrain.dataset.sound import Resampled, loudest
from tests.edgetrain.dataset.whole_sound import Whole


def test_the_loudest_stretch_is_kept_and_short_sound_is_centred() -> None:
    assert loudest(Whole(np.array([0.0, 1, 0, 3, -3, 0, 1]), 8000), 2).tolist() == [3, -3]
    assert loudest(Whole(np.array([1.0, 2]), 8000), 5).tolist() == [0, 1, 2, 0, 0]
    assert loudest(Whole(np.array([1.0, 2]), 8000), 2).tolist() == [1, 2]
    assert loudest(Whole(np.zeros(0), 8000), 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("length", [1, 999, 40_000, 70_000])
@pytest.mark.parametrize("samples", [32_768, 32_769, 70_001, 150_000])
def test_pieces_find_the_stretch_that_the_whole_sound_would(samples: int, length: int) -> None:
    values = np.random.default_rng(samples + length).uniform(-1, 1, samples)
    found = loudest(Whole(values, 8000), length)
    if length >= samples:
        assert len(found) == length
        return
    energy = np.concatenate(([0.0], np.cumsum(np.square(values))))
    start = int(np.argmax(energy[length:] - energy[:-length]))
    assert np.array_equal(found, values[start : start + length])


def test_a_long_sound_is_never_read_whole() -> None:
    asked = []

    class Noted(Whole):
        def read(self, start: int, stop: int) -> Array:
            asked.append(stop - start)
            return Whole.read(self, start, stop)

    loudest(Noted(np.random.default_rng(0).uniform(-1, 1, 1_000_000), 8000), 8000)
    assert max(asked) < 50_000


@pytest.mark.parametrize(("rate", "wanted"), [(8000, 16000), (16000, 8000), (44100, 16000)])
def test_a_slow_tone_survives_resampling(rate: int, wanted: int) -> None:
    tone = np.sin(2 * np.pi * 50 * np.arange(rate) / rate)
    resampled = Resampled(Whole(tone, rate), wanted)
    assert len(resampled) == wanted
    delay = (rate / wanted - 1) / 2 / rate  # a mean over a span lies in its middle
    expected = np.sin(2 * np.pi * 50 * (np.arange(wanted) / wanted + delay))
    np.testing.assert_allclose(resampled.read(0, wanted)[10:-10], expected[10:-10], atol=0.01)


def test_resampling_to_the_same_rate_changes_nothing() -> None:
    values = np.random.default_rng(0).standard_normal(100)
    assert np.array_equal(Resampled(Whole(values, 8000), 8000).read(0, 100), values)


@given(
    samples=st.integers(1, 300),
    rates=st.sampled_from([(8000, 16000), (16000, 8000), (44100, 16000), (16000, 44100), (8000, 8000)]),
    data=st.data(),
)
def test_a_stretch_of_resampled_sound_is_part_of_the_whole(
    samples: int, rates: tuple[int, int], data: st.DataObject
) -> None:
    values = np.random.default_rng(samples).uniform(-1, 1, samples)
    resampled = Resampled(Whole(values, rates[0]), rates[1])
    start = data.draw(st.integers(0, len(resampled) - 1))
    stop = data.draw(st.integers(start + 1, len(resampled)))
    whole = resampled.read(0, len(resampled))
    np.testing.assert_allclose(resampled.read(start, stop), whole[start:stop], rtol=1e-9, atol=1e-9)
