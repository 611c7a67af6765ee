"""Finds pictures that cannot be read before a model is compiled for them, in bounded time.

Every file's header is read, and its end: a JPEG and a PNG say there that they are complete. The pixels of a first
part of the files, spread over the whole folder, are decoded; damage in the middle of another one is found when it is
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgetrain.dataset.pictures import opened_picture
from edgetrain.errors import DataError

_MOST_PIXELS = 300_000_000  # decoded at most: 3 s of JPEGs, by 100 million pixels a second (measured on one 3 GHz core)
_MOST_FILES = 5_000  # decoded at most: 1 s of small files
_TAIL_BYTES = 1 << 16  # phones append previews and films, so the end of the picture may lie before that of the file
# The last bytes of a complete picture.
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xae\x42\x60\x82"}
_SHOWN = 5


def find_broken(paths: Sequence[Path]) -> dict[Path, DataError]:
    """The files that cannot be read, each with the reason. The same files are decoded every time."""
    broken: dict[Path, DataError] = {}
    pixels = files = 0
    for index in _spread(len(paths)):
        path = paths[index]
        try:
            with opened_picture(path) as image:
                size = image.size[0] * image.size[1]
                is_in_budget = files < _MOST_FILES and pixels + size <= _MOST_PIXELS
                if is_in_budget or _looks_cut_off(path, image.format):
                    image.load()
                    pixels, files = pixels + size, files + 1
        except DataError as error:
            broken[path] = error
    return {path: broken[path] for path in sorted(broken)}


def broken_text(broken: Sequence[Path]) -> str:
    """Up to five of them by name, and how many more there are."""
    shown = ", ".join(str(path) for path in broken[:_SHOWN])
    return shown if len(broken) <= _SHOWN else f"{shown} and {len(broken) - _SHOWN} more"


def _spread(count: int) -> list[int]:
    """All indices, in an order of which any beginning lies all over the range."""
    return [int(index) for index in np.random.Generator(np.random.PCG64(0)).permutation(count)]


def _looks_cut_off(path: Path, kind: str | None) -> bool:
    if kind not in _ENDS:
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return _ENDS[kind] not in file.read()
