"""Reads `.npz` files: `x` and `y`, or `x_train`, `y_train` and optionally `x_test`, `y_test`.

For a model with several inputs, `x.NAME` (or `x_train.NAME`) holds the input of that name.

Arrays that were stored without compression (`numpy.savez`) are mapped, not read: only the batches in use take memory.
Compressed ones are read whole, where that leaves room.
"""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.room import require_room
from edgetrain.dataset.samples import Array, NamedSamples, Part, Samples, normal_labels
from edgetrain.errors import DataError

_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip member: ends with the lengths of its name and extra field

# NumPy parses the header of an array as Python source, so damaged ones raise what source does.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ValueError,
    TypeError,
    EOFError,
    OSError,
    OverflowError,
    MemoryError,
    RuntimeError,  # an encrypted member, or one of an unknown compression
    SyntaxError,
    tokenize.TokenError,
)
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path, *, values: bool = False) -> tuple[Part, Part | None]:
    """The training part and, where the file has one, the test part. Pickled arrays are refused.

    `values`: labels are values, so that whole numbers may be negative.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            train = _read_part(path, archive, members, (("x_train", "y_train"), ("x", "y")), values)
            if train is None:
                raise DataError(
                    f"{path} has no training data",
                    why=f"it holds {', '.join(sorted(members)) or 'nothing'}",
                    fix="store `x` and `y`, or `x_train` and `y_train`",
                )
            return train, _read_part(path, archive, members, (("x_test", "y_test"),), values)
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read as .npz", why=str(error), fix="write it with `numpy.savez`") from error


def read_npz_features(path: Path) -> Samples:
    """The features alone: `x`, else those of the test part, else of the training part. Labels need not be there."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            for name in ("x", "x_test", "x_train"):
                features = _read_features(path, archive, members, name)
                if features is not None:
                    return features
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read as .npz", why=str(error), fix="write it with `numpy.savez`") from error
    raise DataError(f"{path} has no `x`", why=f"it holds {', '.join(sorted(members)) or 'nothing'}", fix="store `x`")


def read_npz_arrays(path: Path) -> dict[str, Array]:
    """Every array by its name. Pickled ones are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            return {name: _read_array(path, archive, info) for name, info in infos.items()}
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read as .npz", why=str(error), fix="write it with `numpy.savez`") from error


def _read_features(
    path: Path, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str
) -> Samples | None:
    if name in members:
        return _read_array(path, archive, members[name])
    keys = {key.removeprefix(f"{name}."): key for key in sorted(members) if key.startswith(f"{name}.")}
    if not keys:
        return None
    return NamedSamples(arrays={n: _read_array(path, archive, members[key]) for n, key in keys.items()})


def _read_part(
    path: Path,
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    pairs: tuple[tuple[str, str], ...],
    has_values: bool,
) -> Part | None:
    for features, labels in pairs:
        values = _read_features(path, archive, members, features) if labels in members else None
        if values is None:
            continue
        stored = _read_array(path, archive, members[labels])
        return Part(features=values, labels=normal_labels(stored, f"{path}: `{labels}`", values=has_values))
    return None


def _read_array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _READ_HEADER:
            raise ValueError(f"`{member.filename}` is of version {version[0]}.{version[1]} of the format")
        shape, column_major, dtype = _READ_HEADER[version](file)
        _require_numbers(path, member, shape, dtype, content_bytes=member.file_size - file.tell())
        if member.compress_type == zipfile.ZIP_STORED and 0 not in shape:
            offset = _data_offset(path, member) + file.tell()
            mapped: Array = np.memmap(
                path, mode="r", dtype=dtype, shape=shape, offset=offset, order="F" if column_major else "C"
            )
            return mapped
    require_room(
        path,
        unpacked_bytes=member.file_size,
        packed_bytes=member.compress_size,
        fix="write it with `numpy.savez`, without compression: then it is mapped, not read",
    )
    with archive.open(member) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _require_numbers(
    path: Path, member: zipfile.ZipInfo, shape: tuple[int, ...], dtype: np.dtype[Any], *, content_bytes: int
) -> None:
    """Raises for objects, for complex numbers, and where the header speaks of more than the member holds."""
    if dtype.hasobject:
        raise ValueError(f"`{member.filename}` holds pickled objects, which could run code")
    if dtype.kind == "c":
        raise DataError(
            f"{path}: `{member.filename}` holds complex numbers",
            why="models read real ones, and the imaginary part would be lost",
            fix="store the real and the imaginary part as two channels, or `numpy.abs` of them",
        )
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != content_bytes:
        raise ValueError(f"`{member.filename}` has the shape {list(shape)} and {content_bytes} bytes")


def _data_offset(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the member's bytes begin. The local header's extra field may differ from the directory's."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return member.header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)
