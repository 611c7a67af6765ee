"""Claims about reading `.npz` files: what was written comes back, and what is broken is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.npz import read_npz
from edgetrain.errors import DataError

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
