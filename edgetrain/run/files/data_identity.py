"""`data.json`: what data a run was trained on, as a digest, so that it does not go on with other data unnoticed.

The digest covers, of the training part and of the validation part: the number and order of samples, every label, and of
the features

    arrays             shape, type and content: all of it up to 64 MiB, of more an even choice of rows of that size
    files              every file's folder, name and size, and the content of an even choice of up to 256 files
    texts, series      content of an even choice of up to 256 samples
    objects by index   nothing more: what a user's own `__getitem__` gives may be random

The place of the data does not count, nor does its test part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from edgetrain.dataset.samples import Array, Dataset, NamedSamples, Part, Rows, Samples
from edgetrain.dataset.series import Windows
from edgetrain.dataset.text import TokenSamples
from edgetrain.errors import DataError
from edgetrain.files.sealed import parse_sealed
from edgetrain.files.secret_key import SecretKey
from edgetrain.run.files.protected import protected_bytes

_FORMAT = "edgetrain.data/1"
_MOST_BYTES = 64 << 20
_MOST_ITEMS = 256
_CHUNK_BYTES = 64 << 10  # small: it comes before the process's growth is measured
_MOST_FILE_BYTES = 1 << 20  # read of each chosen file


class _Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...


def data_digest(dataset: Dataset) -> str:
    """As the module says. Raises `DataError` for a file that cannot be read any more."""
    digest = hashlib.sha256()
    for name, part in (("train", dataset.train), ("validation", dataset.validation)):
        if part is not None:
            digest.update(f"{name} {len(part)}\n".encode())
            _hash_part(digest, part)
    return digest.hexdigest()


def data_text(dataset: Dataset, digest: str) -> str:
    """The content of `data.json`, to be sealed."""
    validation = len(dataset.validation) if dataset.validation is not None else 0
    counts = {"training_samples": len(dataset.train), "validation_samples": validation}
    return json.dumps({"format": _FORMAT, **counts, "digest": digest}, indent=1)


def require_same_data(path: Path, digest: str, key: SecretKey | None = None) -> None:
    """Raises `DataError` where the file names other data, or is broken. Runs of older versions have none."""
    if not path.exists():
        return
    try:
        data = parse_sealed(protected_bytes(path, key))
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is not `{_FORMAT}`")
        is_same = data["digest"] == digest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"`{path}` cannot be used",
            why=str(error),
            fix="restore it from a copy, or go on with whatever data is given now: add --new-data",
        ) from error
    if not is_same:
        raise DataError(
            "the data is not what the run began with",
            why=f"there are as many samples, but other ones, or in another order: `{path.name}` holds their digest",
            fix="resume with the data of the first run, or go on with these on purpose: add --new-data (in Python "
            "new_data=True)",
        )


def _hash_part(digest: _Hash, part: Part) -> None:
    is_class = np.issubdtype(part.labels.dtype, np.integer)
    _hash_array(digest, part.labels.astype("<i8" if is_class else "<f8"), np.arange(len(part)), most_bytes=None)
    _hash_features(digest, part.features, np.arange(len(part)))


def _hash_features(digest: _Hash, samples: Samples, rows: Array) -> None:
    match samples:
        case Rows():
            _hash_features(digest, samples.samples, np.asarray(samples.indices)[rows])
        case NamedSamples():
            arrays: Mapping[str, Samples] = samples.arrays
            for name in sorted(arrays):
                digest.update(f"{name}\n".encode())
                _hash_features(digest, arrays[name], rows)
        case np.ndarray():
            _hash_array(digest, samples, rows, most_bytes=_MOST_BYTES)
        case TokenSamples():
            for row in _chosen(rows, _MOST_ITEMS):
                _hash_bytes(digest, samples.texts[int(row)].encode(errors="surrogatepass"))
        case Windows():
            for row in _chosen(rows, _MOST_ITEMS):
                _hash_bytes(digest, samples[int(row)].tobytes())
        case _ if _paths(samples):
            _hash_files(digest, _paths(samples), rows)


def _hash_array(digest: _Hash, array: Array, rows: Array, *, most_bytes: int | None) -> None:
    digest.update(f"{array.dtype.str} {array.shape[1:]}\n".encode())
    if array.dtype.hasobject or not len(rows):
        return
    row_bytes = max(1, int(np.prod(array.shape[1:])) * array.dtype.itemsize)
    chosen = rows if most_bytes is None else _chosen(rows, max(1, most_bytes // row_bytes))
    step = max(1, _CHUNK_BYTES // row_bytes)
    for start in range(0, len(chosen), step):
        digest.update(np.ascontiguousarray(array[chosen[start : start + step]]).tobytes())


def _hash_files(digest: _Hash, paths: tuple[Path, ...], rows: Array) -> None:
    try:
        for row in rows:
            path = paths[int(row)]
            _hash_bytes(
                digest, f"{path.parent.name}/{path.name} {path.stat().st_size}".encode(errors="surrogateescape")
            )
        for row in _chosen(rows, _MOST_ITEMS):
            with paths[int(row)].open("rb") as file:
                left = _MOST_FILE_BYTES
                while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
                    digest.update(chunk)
                    left -= len(chunk)
    except OSError as error:
        raise DataError(
            f"`{error.filename}` cannot be read", why=error.strerror or str(error), fix="check the data"
        ) from error


def _paths(samples: Samples) -> tuple[Path, ...]:
    """Of our own samples that are read from files, one for each."""
    found = getattr(samples, "paths", ())
    return found if isinstance(found, tuple) and all(isinstance(path, Path) for path in found) else ()


def _hash_bytes(digest: _Hash, content: bytes) -> None:
    digest.update(len(content).to_bytes(8, "little"))
    digest.update(content)


def _chosen(rows: Array, most: int) -> Array:
    """All rows, or `most` of them spread evenly, with the first and the last."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
