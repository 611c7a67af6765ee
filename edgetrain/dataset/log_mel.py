"""Sound as a picture: the logarithm of its energy in mel bands, frame by frame. NumPy, the same bits each time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgetrain.dataset.samples import Array
from edgetrain.dataset.sound import Resampled, Sound, loudest

# Added to the energy before its logarithm: about the rounding noise of 16-bit sound, so that silence has a number.
_FLOOR = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMel:
    """How a clip becomes features of the shape (mels, frames)."""

    sample_rate: int
    clip_samples: int
    window_samples: int
    hop_samples: int
    mels: int

    @staticmethod
    def of(*, sample_rate: int, seconds: float, window_s: float, hop_s: float, mels: int) -> LogMel:
        return LogMel(
            sample_rate=sample_rate,
            clip_samples=round(sample_rate * seconds),
            window_samples=max(2, round(sample_rate * window_s)),
            hop_samples=max(1, round(sample_rate * hop_s)),
            mels=mels,
        )

    @property
    def frames(self) -> int:
        """Frames lie wholly inside the clip; a clip shorter than a window gives one, padded."""
        return 1 + max(0, self.clip_samples - self.window_samples) // self.hop_samples


def log_mel(sound: Sound, settings: LogMel) -> Array:
    """The features of the loudest stretch of a sound, float32 of the shape (mels, frames)."""
    clip = loudest(Resampled(sound, settings.sample_rate), max(settings.clip_samples, settings.window_samples))
    starts = np.arange(settings.frames) * settings.hop_samples
    frames = clip[starts[:, np.newaxis] + np.arange(settings.window_samples)]
    # The periodic Hann window, the one for spectra.
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(settings.window_samples) / settings.window_samples)
    bins = fft_size(settings.window_samples)
    power = np.abs(np.fft.rfft(frames * window, n=bins)) ** 2 / np.sum(window**2)
    return np.log(power @ mel_filters(settings.mels, bins, settings.sample_rate).T + _FLOOR).T.astype(np.float32)


def fft_size(window_samples: int) -> int:
    """The next power of two."""
    return 1 << (window_samples - 1).bit_length()


def mel_filters(mels: int, bins: int, sample_rate: int) -> Array:
    """Triangles over the `bins // 2 + 1` frequencies of the spectrum, evenly spaced in mel from 0 to half the rate.

    mel = 2595 log₁₀(1 + f / 700), as in HTK. A band narrower than the spectrum's resolution takes its nearest bin.
    """
    highest = 2595 * np.log10(1 + sample_rate / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, highest, mels + 2) / 2595) - 1)
    frequencies = np.arange(bins // 2 + 1) * sample_rate / bins
    low, centre, high = corners[:-2, np.newaxis], corners[1:-1, np.newaxis], corners[2:, np.newaxis]
    filters = np.maximum(0, np.minimum((frequencies - low) / (centre - low), (high - frequencies) / (high - centre)))
    empty = np.flatnonzero(filters.sum(axis=1) == 0)
    filters[empty, np.abs(frequencies - centre[empty]).argmin(axis=1)] = 1.0
    return filters
