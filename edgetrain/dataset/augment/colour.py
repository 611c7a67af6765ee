"""Pictures in other light: arrays of (channels, height, width), or (height, width) for grey. Zero stays black."""

from __future__ import annotations

import numpy as np

from edgetrain.dataset.samples import Array

# ITU-R BT.601: how bright red, green and blue look.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
COLOURS = 3


def brighten_randomly(picture: Array, share: float, random: np.random.Generator) -> Array:
    return picture * _factor(share, random)


def contrast_randomly(picture: Array, share: float, random: np.random.Generator) -> Array:
    return _away_from(np.float32(_grey(picture).mean()), picture, _factor(share, random))


def saturate_randomly(picture: Array, share: float, random: np.random.Generator) -> Array:
    return _away_from(_grey(picture), picture, _factor(share, random))


def _factor(share: float, random: np.random.Generator) -> np.float32:
    return np.float32(1.0 + share * random.uniform(-1.0, 1.0))


def _away_from(middle: Array | np.float32, picture: Array, factor: np.float32) -> Array:
    moved = picture - middle
    moved *= factor
    moved += middle
    return moved


def _grey(picture: Array) -> Array:
    """How bright each pixel looks; a grey picture is that already."""
    if picture.ndim == 3 and len(picture) == COLOURS:
        height, width = picture.shape[1:]
        return (_LUMA @ picture.reshape(COLOURS, -1)).reshape(height, width)
    return picture
