"""Mixup (arXiv:1710.09412) and CutMix (arXiv:1905.04899). The other sample is drawn from the whole training part.

Most implementations mix within a batch; what a sample becomes would then depend on the batch's size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgetrain.dataset.augment.randomness import Address, random_at
from edgetrain.dataset.convert import is_channels_last
from edgetrain.dataset.samples import Array
from edgetrain.errors import UsageError
from edgetrain.recipes import AugmentSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What a sample is mixed with: `share` is what stays of it, `centre` the place of CutMix's rectangle, 0 to 1."""

    partner: int
    share: float
    centre: tuple[float, float] | None = None


def draw_mix(section: AugmentSection, address: Address, *, samples: int) -> Mix:
    """Where both are on, every second sample gets the one, on average. Partners have rows below `samples`."""
    random = random_at(address, "mix")
    partner, is_second, down, across = int(random.integers(samples)), random.random() < 0.5, *random.random(2)
    is_cutmix = section.cutmix > 0 and (section.mixup == 0 or is_second)
    alpha = section.cutmix if is_cutmix else section.mixup
    share = float(random.beta(alpha, alpha))
    return Mix(partner=partner, share=share, centre=(float(down), float(across)) if is_cutmix else None)


def mix_into(sample: Array, other: Array, mix: Mix) -> float:
    """Mixes the other sample into this one, in place; what share of it stayed, which is that of its label."""
    if mix.centre is None:
        sample *= np.float32(mix.share)
        sample += np.float32(1.0 - mix.share) * other
        return mix.share
    if sample.ndim != 3:
        raise UsageError(
            f"data.augment.cutmix needs a model that takes pictures, and this one takes {list(sample.shape)}",
            why="the rectangle of another picture would not be one",
            fix="set data.augment.cutmix=0, or use data.augment.mixup",
        )
    if is_channels_last(sample):
        sample, other = sample.transpose(2, 0, 1), other.transpose(2, 0, 1)  # views: what is written stays
    height, width = sample.shape[-2:]
    rows, columns = (
        _span(place, math.sqrt(1.0 - mix.share), size) for place, size in zip(mix.centre, (height, width), strict=True)
    )
    sample[..., rows, columns] = other[..., rows, columns]
    replaced = int((rows.stop - rows.start) * (columns.stop - columns.start))
    return 1.0 - replaced / int(height * width)


def _span(centre: float, share: float, size: int) -> slice:
    """So many pixels round the centre, cut off at the edges."""
    middle, half = centre * size, share * size / 2
    start, stop = max(0, round(middle - half)), min(size, round(middle + half))
    return slice(start, max(start, stop))
