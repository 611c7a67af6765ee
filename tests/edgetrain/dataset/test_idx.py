"""Claims about reading IDX files: what was written comes back, and what is broken is named."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset import room
from edgetrain.dataset.idx import read_idx, read_idx_folder
from edgetrain.errors import DataError
from edgetrain.free_memory import MemoryReading

X = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)
Y = np.array([0, 1, 1, 2])


def idx_bytes(array: np.ndarray[Any, Any], code: int) -> bytes:
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(("dtype", "code"), [("u1", 8), ("i1", 9), ("i2", 11), ("i4", 12), ("f4", 13), ("f8", 14)])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_idx_file_of_every_type_comes_back(tmp_path: Path, dtype: str, code: int, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    data = idx_bytes(X.astype(dtype), code)
    path.write_bytes(gzip.compress(data) if suffix else data)
    assert np.array_equal(read_idx(path), X.astype(dtype))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_idx_file_cut_short_is_named_with_its_sizes(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    data = idx_bytes(X, 8)[:-5]
    path.write_bytes(gzip.compress(data) if suffix else data)
    with pytest.raises(DataError, match=r"19 bytes of data where its header .* needs 24"):
        read_idx(path)


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x08", b"PNG!", b"\x00\x00\x08\x03\x00"])
def test_a_file_that_is_no_idx_is_a_data_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError):
        read_idx(tmp_path / "a")


def test_an_idx_folder_has_a_training_part_and_perhaps_a_test_part(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(X, 8))
    with pytest.raises(DataError, match="no IDX training data"):
        read_idx_folder(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(Y.astype("u1"), 8)))
    train, test = read_idx_folder(tmp_path)
    assert np.array_equal(train.labels, Y)
    assert test is None


def test_a_gzipped_file_that_unpacks_to_more_than_there_is_room_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = MemoryReading(available_bytes=100_000, total_bytes=10**9, stalled_share=0.0)
    monkeypatch.setattr(room, "read_memory", lambda: little)
    path = tmp_path / "train-images-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 60_000) + bytes(60_000)))
    with pytest.raises(DataError, match="unpack to 60kB"):
        read_idx(path)


def test_a_gzipped_file_with_more_behind_its_data_is_refused_without_unpacking_it(tmp_path: Path) -> None:
    path = tmp_path / "train-images-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 4) + bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="where its header"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
