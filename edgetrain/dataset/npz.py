"""Reads `.npz` files: `x` and `y`, or `x_train`, `y_train` and optionally `x_test`, `y_test`.

For a model with several inputs, `x.NAME` (or `x_train.NAME`) holds the input of that name.

Arrays that were stored without compression (`numpy.savez`) are mapped, not read: only the batches in use take memory.
"""

from __future__ import annotations

import struct
import tokenize
import zipfile
from pathlib import Path

import numpy as np

from edgetrain.dataset.samples import Array, NamedSamples, Part, Samples, normal_labels
from edgetrain.errors import DataError

_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip member: ends with the lengths of its name and extra field

# NumPy parses the header of an array as Python source, so damaged ones raise what source does.
_BROKEN = (zipfile.BadZipFile, ValueError, EOFError, OSError, SyntaxError, tokenize.TokenError)


def read_npz(path: Path) -> tuple[Part, Part | None]:
    """The training part and, where the file has one, the test part. Pickled arrays are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            train = _read_part(path, archive, members, (("x_train", "y_train"), ("x", "y")))
            if train is None:
                raise DataError(
                    f"{path} has no training data",
                    why=f"it holds {', '.join(sorted(members)) or 'nothing'}",
                    fix="store `x` and `y`, or `x_train` and `y_train`",
                )
            return train, _read_part(path, archive, members, (("x_test", "y_test"),))
    except _BROKEN as error:
        raise DataError(f"{path} cannot be read as .npz", why=str(error), fix="write it with `numpy.savez`") from error


def _read_part(
    path: Path,
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    pairs: tuple[tuple[str, str], ...],
) -> Part | None:
    for features, labels in pairs:
        named = {key.removeprefix(f"{features}."): key for key in sorted(members) if key.startswith(f"{features}.")}
        if labels not in members or not (named or features in members):
            continue
        values: Samples
        if features in members:
            values = _read_array(path, archive, members[features])
        else:
            values = NamedSamples(arrays={n: _read_array(path, archive, members[key]) for n, key in named.items()})
        numbers = normal_labels(_read_array(path, archive, members[labels]), f"{path}: `{labels}`")
        return Part(features=values, labels=numbers)
    return None


def _read_array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if member.compress_type == zipfile.ZIP_STORED and version in read_header:
            shape, column_major, dtype = read_header[version](file)
            if not dtype.hasobject and 0 not in shape:
                offset = _data_offset(path, member) + file.tell()
                mapped: Array = np.memmap(
                    path, mode="r", dtype=dtype, shape=shape, offset=offset, order="F" if column_major else "C"
                )
                return mapped
    with archive.open(member) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _data_offset(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the member's bytes begin. The local header's extra field may differ from the directory's."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return member.header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)
