from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.images import ImageFiles
from edgetrain.dataset.in_memory import IndexedSamples
from edgetrain.dataset.samples import Dataset, NamedSamples, Part, Rows, Samples
from edgetrain.errors import DataError
from edgetrain.files.sealed import sealed
from edgetrain.run.files.data_identity import data_digest, data_text, require_same_data

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 3


def data(x: Samples = X, y: np.ndarray[Any, Any] = Y, **parts: Part) -> Dataset:
    return dataclasses.replace(Dataset(name="data", train=Part(features=x, labels=y)), **parts)  # type: ignore[arg-type]


def changed(array: np.ndarray[Any, Any], index: Any) -> np.ndarray[Any, Any]:
    other = array.copy()
    other[index] += 1
    return other


def test_equal_data_has_an_equal_digest_however_it_is_held() -> None:
    rows = Rows(samples=np.concatenate([X[:5], X]), indices=np.arange(5, 25))
    assert data_digest(data()) == data_digest(data(X.copy())) == data_digest(data(rows))
    assert data_digest(data()) == data_digest(data(y=Y.astype(np.int32)))


@pytest.mark.parametrize(
    "other",
    [
        data(changed(X, (7, 2))),
        data(y=changed(Y, 19)),
        data(X[::-1]),
        data(X.reshape(20, 3, 1)),
        data(X.astype(np.float64)),
        data(NamedSamples(arrays={"a": X})),
        data(validation=Part(features=X[:2], labels=Y[:2])),
    ],
)
def test_other_data_has_another_digest(other: Dataset) -> None:
    assert data_digest(other) != data_digest(data())


def test_the_test_part_does_not_count() -> None:
    assert data_digest(data(test=Part(features=X[:2], labels=Y[:2]))) == data_digest(data())


def test_large_arrays_are_covered_by_rows_of_all_parts() -> None:
    large = np.zeros((300, 1 << 19), np.uint8)  # 150 MiB
    labels = np.zeros(300, np.int64)
    digest = data_digest(data(large, labels))
    large[299, 5] = 1
    assert data_digest(data(large, labels)) != digest


def test_files_count_by_name_size_and_content_not_by_place(tmp_path: Path) -> None:
    def files(folder: Path, content: bytes, name: str = "1.png") -> Dataset:
        (folder / "cat").mkdir(parents=True)
        (folder / "cat" / name).write_bytes(content)
        return data(ImageFiles(paths=(folder / "cat" / name,)), np.zeros(1, np.int64))

    digest = data_digest(files(tmp_path / "a", b"abc"))
    assert data_digest(files(tmp_path / "b", b"abc")) == digest
    assert data_digest(files(tmp_path / "c", b"abd")) != digest
    assert data_digest(files(tmp_path / "d", b"abcd")) != digest
    assert data_digest(files(tmp_path / "e", b"abc", "2.png")) != digest


def test_samples_of_a_users_object_may_be_random() -> None:
    class Noise:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> tuple[object, int]:
            raise AssertionError("a digest must not draw from it")

    assert data_digest(data(IndexedSamples(source=Noise()))) == data_digest(data(IndexedSamples(source=Noise())))


def test_only_the_same_data_is_let_through(tmp_path: Path) -> None:
    path, digest = tmp_path / "data.json", data_digest(data())
    require_same_data(path, digest)  # a run of an older version
    path.write_text(sealed(data_text(data(), digest)))
    require_same_data(path, digest)
    with pytest.raises(DataError, match="not what the run began with"):
        require_same_data(path, data_digest(data(y=changed(Y, 0))))
    path.write_text(path.read_text().replace('"training_samples": 20', '"training_samples": 21'))
    with pytest.raises(DataError, match="cannot be used"):
        require_same_data(path, digest)
