"""Pictures moved: flipped, cropped, rotated, shifted.

Arrays of (…, height, width) keep their shape. What lay outside of the picture is 0.
"""

from __future__ import annotations

import math

import numpy as np

from edgetrain.dataset.samples import Array

_FLIPPED_AXES = {"horizontal": (-1,), "vertical": (-2,), "both": (-1, -2)}


def flip_randomly(picture: Array, mode: str, random: np.random.Generator) -> Array:
    """Each of the mode's flips for every second picture; `both` are drawn on their own."""
    for axis, is_flipped in zip((-1, -2), random.random(2) < 0.5, strict=True):
        if is_flipped and axis in _FLIPPED_AXES[mode]:
            picture = flip(picture, axis)
    return picture


def flip(picture: Array, axis: int) -> Array:
    return np.flip(picture, axis)


def crop_randomly(picture: Array, share: float, random: np.random.Generator) -> Array:
    kept, down, across = 1.0 - share * random.random(), random.random(), random.random()
    return crop(picture, kept=kept, down=down, across=across)


def crop(picture: Array, *, kept: float, down: float, across: float) -> Array:
    """The share `kept` of both sides, scaled up to the whole; `down` and `across`, 0 to 1, say where it lies."""
    for axis, place in ((-2, down), (-1, across)):
        size = picture.shape[axis]
        start = place * (1.0 - kept) * size
        position = np.clip(start + (np.arange(size) + 0.5) * kept - 0.5, 0, size - 1)
        picture = _lines_at(picture, position, axis)
    return picture


def _lines_at(picture: Array, position: Array, axis: int) -> Array:
    """Rows or columns between the stored ones, by straight lines."""
    low = np.floor(position).astype(np.intp)
    high = np.minimum(low + 1, picture.shape[axis] - 1)
    weight = (position - low).astype(np.float32)
    at_low = picture.take(low, axis=axis)
    between: Array = picture.take(high, axis=axis)
    between -= at_low
    between *= weight[:, np.newaxis] if axis == -2 else weight
    between += at_low
    return between


def rotate_randomly(picture: Array, degrees: float, random: np.random.Generator) -> Array:
    return rotate(picture, random.uniform(-degrees, degrees))


def rotate(picture: Array, degrees: float) -> Array:
    """Counter-clockwise round the middle, by straight lines between pixels."""
    height, width = picture.shape[-2:]
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    down = (np.arange(height, dtype=np.float32) - (height - 1) / 2)[:, np.newaxis]
    across = np.arange(width, dtype=np.float32) - (width - 1) / 2
    # Where each pixel comes from, in a picture with a frame of zeros: outside of it everything is 0.
    y = np.clip(down * cosine + across * sine + ((height - 1) / 2 + 1), 0, height + 1 - _LEAST)
    x = np.clip(across * cosine - down * sine + ((width - 1) / 2 + 1), 0, width + 1 - _LEAST)
    row, column = y.astype(np.int32), x.astype(np.int32)
    row_weight, column_weight = (y - row).ravel(), (x - column).ravel()
    corner = (row * (width + 2) + column).ravel()
    framed = np.zeros((math.prod(picture.shape[:-2]), height + 2, width + 2), np.float32)
    framed[:, 1:-1, 1:-1] = picture.reshape(-1, height, width)
    turned = np.empty((len(framed), height * width), np.float32)
    for source, out in zip(framed.reshape(len(framed), -1), turned, strict=True):
        above = _between(source, corner, column_weight)
        below = _between(source, corner + (width + 2), column_weight)
        below -= above
        below *= row_weight
        np.add(above, below, out=out)
    return turned.reshape(picture.shape)


_LEAST = 1e-3  # keeps the neighbour to the lower right inside the frame


def _between(source: Array, left: Array, weight: Array) -> Array:
    at_left: Array = source.take(left)
    value: Array = source.take(left + 1)
    value -= at_left
    value *= weight
    value += at_left
    return value


def shift_randomly(picture: Array, share: float, random: np.random.Generator) -> Array:
    height, width = picture.shape[-2:]
    furthest = round(share * height), round(share * width)
    down, across = (int(random.integers(-pixels, pixels + 1)) for pixels in furthest)
    return shift(picture, down=down, across=across)


def shift(picture: Array, *, down: int, across: int) -> Array:
    """So many whole pixels down and to the right."""
    shifted = np.zeros_like(picture)
    (to_y, from_y), (to_x, from_x) = _overlap(down), _overlap(across)
    shifted[..., to_y, to_x] = picture[..., from_y, from_x]
    return shifted


def _overlap(distance: int) -> tuple[slice, slice]:
    """What a shift by that distance fills, and what it fills that with."""
    ahead, behind = max(distance, 0), max(-distance, 0)
    return slice(ahead, -behind or None), slice(behind, -ahead or None)
