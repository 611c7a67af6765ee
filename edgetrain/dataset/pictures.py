"""Pictures as arrays: what Pillow opens, in whatever mode, upright, grey or colour, with 8 or 16 bits.

An array is (height, width) where the picture is grey, else (height, width, 3); uint8, or uint16 with 16 bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.room import require_room
from edgetrain.dataset.samples import Array
from edgetrain.errors import DataError
from edgetrain.files.regular_file import require_regular

# What Pillow raises for files that are damaged, whatever their format.
BROKEN = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError)

_GREY = ("1", "L")
# What reading a picture takes with Pillow's copies and ours, measured with 36 million pixels of each mode.
_BYTES_A_PIXEL = {"1": 5, "L": 5}
_MOST_BYTES_A_PIXEL = 24
_SMALL_BYTES = 1 << 24  # for less, the system is not asked what is free: that takes as long as a small picture
_USUAL_RATIO = 1000  # photos have a byte for four to ten pixels, and a blank scan packs to a thousandth
_MOST_16_BIT, _MOST_8_BIT = 65535, 255


def pillow() -> Any:
    """Pillow's `Image`. Raises `DataError` with the extra that brings it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("images need Pillow, which is not installed", fix="pip install 'edgetrain[vision]'") from error
    return Image


@contextmanager
def opened_picture(path: Path) -> Iterator[Any]:
    """The file as Pillow opens it: only its header is read. Raises `DataError` for what is no picture, or too large.

    What goes wrong while it is used inside the block becomes the same error.
    """
    module = pillow()
    require_regular(path, DataError)
    try:
        with warnings.catch_warnings():  # Pillow warns of large pictures; those that it refuses are an error
            warnings.simplefilter("ignore", module.DecompressionBombWarning)
            with module.open(path) as image:
                _require_room(path, image)
                yield image
    except module.DecompressionBombError as error:
        raise DataError(
            f"{path} is refused: it unpacks to more than {2 * module.MAX_IMAGE_PIXELS // 10**6} million pixels",
            why="a small file that unpacks to so much can be an attack on the machine's memory",
            fix="make it smaller, or leave it out",
        ) from error
    except BROKEN as error:
        raise DataError(
            f"{path} is not an image that can be read", why=str(error) or type(error).__name__, fix="remove the file"
        ) from error


def _require_room(path: Path, image: Any) -> None:
    needed = image.size[0] * image.size[1] * _BYTES_A_PIXEL.get(image.mode, _MOST_BYTES_A_PIXEL)
    if needed > _SMALL_BYTES:
        require_room(
            path,
            unpacked_bytes=needed,
            packed_bytes=path.stat().st_size,
            fix="make it smaller, or leave it out",
            usual_ratio=_USUAL_RATIO,
        )


def read_picture(path: Path) -> Array:
    """The file as an array. Raises `DataError` as `opened_picture` does."""
    with opened_picture(path) as image:
        return picture_array(image)


def picture_array(image: Any) -> Array:
    """A Pillow image as an array, turned as its EXIF orientation says, on white where it is transparent.

    Raises `ValueError` for numbers of which nobody knows what is black and what is white.
    """
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        return _deep(np.asarray(image))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        return _on_white(image)
    return np.asarray(image.convert("L" if image.mode in _GREY else "RGB"))


def _deep(values: Array) -> Array:
    """Whole numbers up to 65535 are 16 bits, larger ones 32; fractions are 0 to 1, or 0 to 255."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if not low >= 0:  # also NaN
        raise ValueError(f"its pixels go from {low:g} to {high:g}: nobody knows what is black and white")
    if values.dtype.kind in "iu":
        return (values if high <= _MOST_16_BIT else values >> 16).astype(np.uint16)
    if high > _MOST_8_BIT:
        raise ValueError(f"its pixels are fractions up to {high:g}: save them as 0 to 1, or with 16 bits")
    scale = _MOST_16_BIT / (1.0 if high <= 1 else _MOST_8_BIT)
    return np.rint(values.astype(np.float64) * scale).astype(np.uint16)


def _on_white(image: Any) -> Array:
    is_grey = image.mode in ("LA", "La", *_GREY)
    module = pillow()
    colour = image.convert("RGBA")
    white = module.new("RGBA", colour.size, "white")
    flat = module.alpha_composite(white, colour).convert("RGB")
    # All three channels of a grey picture are equal; converting would round them.
    return np.asarray(flat.getchannel(0) if is_grey else flat)
