"""Claims about reading `.npz` files: what was written comes back, and what is broken is named."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset import room
from edgetrain.dataset.npz import read_npz
from edgetrain.errors import DataError
from edgetrain.free_memory import MemoryReading

X = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)
Y = np.array([0, 1, 1, 2])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("features", [X, np.asfortranarray(X), X.astype(np.float64)])
def test_an_npz_comes_back(tmp_path: Path, save: Any, features: np.ndarray[Any, Any]) -> None:
    save(tmp_path / "a.npz", x_train=features, y_train=Y, x_test=features[:1], y_test=Y[:1])
    train, test = read_npz(tmp_path / "a.npz")
    assert np.array_equal(np.asarray(train.features), features)
    assert np.array_equal(train.labels, Y)
    assert test is not None
    assert len(test) == 1


def test_an_uncompressed_npz_is_mapped_and_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    assert isinstance(read_npz(tmp_path / "a.npz")[0].features, np.memmap)


def test_a_pickled_array_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}, {}], dtype=object), y=np.array([0, 1]))
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(tmp_path / "a.npz")


def test_an_npz_without_the_keys_says_which_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=X, y=Y)
    with pytest.raises(DataError, match="it holds images, y"):
        read_npz(tmp_path / "a.npz")


def test_a_file_that_is_no_zip_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        read_npz(tmp_path / "a.npz")


def test_arrays_named_after_inputs_are_the_inputs_of_one_sample(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "x_train.ids": np.arange(6).reshape(3, 2),
        "x_train.mask": np.ones((3, 2), np.int64),
        "y_train": [0, 1, 0],
    }
    np.savez(tmp_path / "a.npz", **arrays)
    train, test = read_npz(tmp_path / "a.npz")
    assert test is None
    sample = train.features[2]
    assert sample["ids"].tolist() == [4, 5]
    assert sample["mask"].tolist() == [1, 1]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("key", ["x", "y"])
def test_complex_numbers_are_refused_and_not_cut(key: str, save: Any, tmp_path: Path) -> None:
    arrays = {"x": X.astype(np.float32), "y": Y.astype(np.float32)}
    save(tmp_path / "a.npz", **{**arrays, key: arrays[key] + 1j})
    with pytest.raises(DataError, match=rf"`{key}\.npy` holds complex numbers"):
        read_npz(tmp_path / "a.npz")


def test_what_unpacks_to_more_than_the_machine_has_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.random.default_rng(0).random((4, 2000)), y=Y)
    little = MemoryReading(available_bytes=100_000, total_bytes=10**9, stalled_share=0.0)
    monkeypatch.setattr(room, "read_memory", lambda: little)
    with pytest.raises(DataError, match=r"unpack to 64\.13kB") as caught:
        read_npz(tmp_path / "a.npz")
    assert "half of the memory that is free is 50kB" in caught.value.why
    assert "mapped" in caught.value.fix


def test_zeros_that_unpack_to_gigabytes_are_refused_on_any_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zip that says it holds 3 GB of zeros, of which it packs the first megabyte: nobody unpacks it to see."""
    much = MemoryReading(available_bytes=1 << 40, total_bytes=1 << 40, stalled_share=0.0)
    monkeypatch.setattr(room, "read_memory", lambda: much)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (3 << 30,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(1 << 20))
        archive.writestr("y.npy", header.getvalue() + bytes(1 << 20))
        for info in archive.infolist():
            info.file_size = len(header.getvalue()) + (3 << 30)
    with pytest.raises(DataError, match=r"unpack to 3\.221GB"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("shape", [(1 << 62, 1 << 62), (1 << 40,), (-4,), (5,)])
def test_a_header_that_speaks_of_other_sizes_is_a_data_error(shape: tuple[int, ...], tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as archive:
            archive.writestr("x.npy", header.getvalue() + bytes(16))
            archive.writestr("y.npy", header.getvalue() + bytes(16))
        with pytest.raises(DataError, match=r"cannot be read as \.npz"):
            read_npz(tmp_path / "a.npz")
