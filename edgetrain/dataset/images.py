"""Reads a folder of images, one sub-folder a class, opened when they are needed.

    photos/cat/1.jpg   photos/cat/2.jpg   photos/dog/1.jpg

Where the folder holds `train` and `test`, those are the parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.samples import Array, Part
from edgetrain.errors import DataError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFiles:
    """Images by index as uint8: (height, width) where the file is grey, else (height, width, 3)."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any, /) -> Array:
        return _open(self.paths[int(index)])


def read_image_folder(folder: Path) -> tuple[Part, Part | None, tuple[str, ...]]:
    """The training part, the test part where there is one, and the names of the classes in sorted order.

    Raises `DataError` where there are no images, or where Pillow is not installed.
    """
    _pillow()
    has_parts = (folder / "train").is_dir()
    train = folder / "train" if has_parts else folder
    names = tuple(sorted(entry.name for entry in train.iterdir() if entry.is_dir()))
    part = _read_part(train, names)
    if not len(part):
        raise DataError(
            f"{folder} holds no images",
            why=f"looked for {', '.join(sorted(SUFFIXES))} in a sub-folder for each class",
            fix="arrange them as `folder/class/image.png`",
        )
    test = _read_part(folder / "test", names) if has_parts and (folder / "test").is_dir() else None
    return part, test, names


def _read_part(folder: Path, names: tuple[str, ...]) -> Part:
    unknown = {entry.name for entry in folder.iterdir() if entry.is_dir()} - set(names)
    if unknown:
        raise DataError(
            f"{folder} has the class `{min(unknown)}` that the training part lacks",
            fix="use the same sub-folders in `train` and `test`",
        )
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        if not (folder / name).is_dir():
            continue
        found = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in SUFFIXES)
        paths += found
        labels += [label] * len(found)
    return Part(features=ImageFiles(paths=tuple(paths)), labels=np.array(labels, np.int64))


def _open(path: Path) -> Array:
    pillow = _pillow()
    try:
        with pillow.open(path) as image:
            # `L` is grey with 8 bits; everything else (palettes, alpha, 16 bits) becomes plain colour.
            return np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path} is not an image that can be read", why=str(error), fix="remove the file") from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            "a folder of images needs Pillow, which is not installed", fix="pip install 'edgetrain[vision]'"
        ) from error
    return Image
