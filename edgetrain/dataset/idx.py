"""Reads folders of IDX files, plain or gzipped: the format of MNIST and Fashion-MNIST.

Plain files are mapped, not read. Gzipped ones are read whole, as stored: one byte a pixel.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.room import require_room
from edgetrain.dataset.samples import Array, Part, normal_labels
from edgetrain.errors import DataError
from edgetrain.files.regular_file import require_regular

_DTYPES: Mapping[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
TRAIN, TEST = "train", "t10k"


def is_idx_folder(folder: Path) -> bool:
    return bool(_find(folder, TRAIN, "images"))


def read_idx_folder(folder: Path) -> tuple[Part, Part | None]:
    """`train-images…`, `train-labels…` and, where present, `t10k-images…` and `t10k-labels…`."""
    train = _read_part(folder, TRAIN)
    if train is None:
        raise DataError(
            f"{folder} has no IDX training data",
            why="there is no pair of files `train-images*-ubyte` and `train-labels*-ubyte` (`.gz` or not)",
            fix="check `data.source`",
        )
    return train, _read_part(folder, TEST)


def read_idx(path: Path) -> Array:
    """The array in one IDX file. Raises `DataError` for another format or a file cut short."""
    require_regular(path, DataError)
    is_compressed = path.suffix == ".gz"
    try:
        with gzip.open(path) if is_compressed else path.open("rb") as file:
            dtype, shape = _read_header(file.read(4), path, file)
            offset = 4 + 4 * len(shape)
            if is_compressed:
                needed = math.prod(shape) * dtype.itemsize
                packed = path.stat().st_size
                require_room(path, unpacked_bytes=needed, packed_bytes=packed, fix="unpack it: then it is mapped")
                data = file.read(needed + 1)
                _check_size(path, len(data), dtype, shape)
                return np.frombuffer(data, dtype).reshape(shape)
        _check_size(path, path.stat().st_size - offset, dtype, shape)
        return np.memmap(path, mode="r", dtype=dtype, shape=shape, offset=offset)
    except (OSError, EOFError, ValueError, OverflowError, struct.error, zlib.error) as error:
        raise DataError(f"{path} cannot be read", why=str(error), fix="copy or install the data again") from error


def _read_header(magic: bytes, path: Path, file: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES or magic[3] == 0:
        raise DataError(f"{path} is not an IDX file", why=f"it begins with {magic!r}", fix="check `data.source`")
    return _DTYPES[magic[2]], struct.unpack(f">{magic[3]}I", file.read(4 * magic[3]))


def _check_size(path: Path, found: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    needed = math.prod(shape) * dtype.itemsize
    if found != needed:
        raise DataError(
            f"{path} holds {found} bytes of data where its header {list(shape)} needs {needed}",
            why="the file is cut short or not an IDX file",
            fix="copy or install the data again",
        )


def _find(folder: Path, part: str, kind: str) -> list[Path]:
    return sorted(path for path in folder.glob(f"{part}-{kind}*") if "ubyte" in path.name)


def _read_part(folder: Path, part: str) -> Part | None:
    images, labels = _find(folder, part, "images"), _find(folder, part, "labels")
    if not images or not labels:
        return None
    return Part(features=read_idx(images[0]), labels=normal_labels(read_idx(labels[0]), str(labels[0])))
