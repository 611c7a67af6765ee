"""Arrays of pixels as small PNG pictures inside a page. Needs no Pillow: a device that trains need not have it."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {2: 0, 3: 2}  # by the array's dimensions: grey, RGB


def pixels_to_png(pixels: Pixels) -> bytes:
    """A uint8 array of shape (height, width) or (height, width, 3) as a PNG file."""
    if pixels.dtype != np.uint8 or pixels.ndim not in _COLOUR_TYPES or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ValueError(f"an array of {pixels.dtype} with shape {pixels.shape} is no picture")
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)  # each row begins with its filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[pixels.ndim], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(unfiltered.tobytes(), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def pixels_to_uri(pixels: Pixels) -> str:
    """The same as the address of an `<img>`, so that a page needs no other file."""
    return "data:image/png;base64," + base64.b64encode(pixels_to_png(pixels)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
