"""Claims about log-mel features, against their definition one frequency at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.log_mel import LogMel, log_mel, mel_filters
from tests.edgetrain.dataset.whole_sound import Whole

Array = np.ndarray[Any, Any]
SETTINGS = LogMel.of(sample_rate=1000, seconds=0.2, window_s=0.03, hop_s=0.013, mels=5)


def tone(frequency: float, *, rate: int, samples: int) -> Array:
    return np.sin(2 * np.pi * frequency * np.arange(samples) / rate)


def log_mel_reference(clip: Array, settings: LogMel, filters: Array) -> Array:
    """The discrete Fourier transform as a sum, one frame and one frequency at a time."""
    size, width = 2 * (filters.shape[1] - 1), settings.window_samples
    window = [0.5 - 0.5 * math.cos(2 * math.pi * n / width) for n in range(width)]
    out = np.empty((settings.mels, settings.frames))
    for frame in range(settings.frames):
        start = frame * settings.hop_samples
        power = np.empty(filters.shape[1])
        for k in range(filters.shape[1]):
            turns = [-2j * math.pi * k * n / size for n in range(width)]
            total = sum(clip[start + n] * window[n] * np.exp(turns[n]) for n in range(width))
            power[k] = abs(total) ** 2 / sum(w * w for w in window)
        out[:, frame] = np.log(filters @ power + 1e-6)
    return out


@pytest.mark.parametrize("seed", range(3))
def test_features_are_those_of_the_definition(seed: int) -> None:
    clip = np.random.default_rng(seed).uniform(-1, 1, SETTINGS.clip_samples)
    expected = log_mel_reference(clip, SETTINGS, mel_filters(5, 32, 1000))
    found = log_mel(Whole(clip, 1000), SETTINGS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("samples", [0, 1, 57, 200, 1000])
def test_a_clip_of_any_length_has_the_same_shape_and_is_finite(samples: int) -> None:
    features = log_mel(Whole(np.ones(samples), 1000), SETTINGS)
    assert features.shape == (SETTINGS.mels, SETTINGS.frames) == (5, 14)
    assert np.isfinite(features).all()


def test_a_tone_is_loudest_in_the_band_around_it() -> None:
    settings = LogMel.of(sample_rate=8000, seconds=0.5, window_s=0.025, hop_s=0.01, mels=20)
    peaks = [
        int(log_mel(Whole(tone(f, rate=8000, samples=4000), 8000), settings).mean(axis=1).argmax())
        for f in (200, 500, 1000, 2000, 3500)
    ]
    assert peaks == sorted(set(peaks))
    corners = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 22) / 2595) - 1)
    for frequency, peak in zip((200, 500, 1000, 2000, 3500), peaks, strict=True):
        assert corners[peak] < frequency < corners[peak + 2]


@pytest.mark.parametrize(("mels", "bins", "rate"), [(40, 256, 8000), (80, 512, 16000), (40, 32, 8000)])
def test_every_band_hears_something_and_no_weight_is_above_one(mels: int, bins: int, rate: int) -> None:
    filters = mel_filters(mels, bins, rate)
    assert filters.shape == (mels, bins // 2 + 1)
    assert (filters.sum(axis=1) > 0).all()
    assert filters.min() >= 0
    assert filters.max() <= 1
