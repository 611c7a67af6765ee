"""What happens to any measured signal: noise, and time that is a little early or late. Time is the last axis."""

from __future__ import annotations

import numpy as np

from edgetrain.dataset.samples import Array


def add_noise(sample: Array, share: float, random: np.random.Generator) -> Array:
    """Gaussian, with that share of the sample's own standard deviation: any unit will do."""
    noise: Array = np.asarray(random.standard_normal(sample.shape, dtype=np.float32))
    noise *= np.float32(share * sample.std())
    noise += sample
    return noise


def shift_time_randomly(sample: Array, share: float, random: np.random.Generator) -> Array:
    furthest = round(share * sample.shape[-1])
    return shift_time(sample, int(random.integers(-furthest, furthest + 1)))


def shift_time(sample: Array, steps: int) -> Array:
    """So many steps later; the first or last step is repeated where nothing is known."""
    last = sample.shape[-1] - 1
    shifted: Array = sample.take(np.clip(np.arange(last + 1) - steps, 0, last), axis=-1)
    return shifted
