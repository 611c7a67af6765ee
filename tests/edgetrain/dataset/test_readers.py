"""Claims about the readers: what was written comes back, and what is broken is named."""

from __future__ import annotations

import builtins
import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.csv import read_csv
from edgetrain.dataset.idx import read_idx, read_idx_folder
from edgetrain.dataset.images import read_image_folder
from edgetrain.dataset.npz import read_npz
from edgetrain.errors import DataError

X = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)
Y = np.array([0, 1, 1, 2])


def idx_bytes(array: np.ndarray[Any, Any], code: int) -> bytes:
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


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


def test_a_csv_comes_back_with_its_label_column_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("u,label,v\n1,0,2.5\n\n3,1,-4e-1\n")
    part, names = read_csv(tmp_path / "a.csv")
    assert np.array_equal(np.asarray(part.features), np.array([[1, 2.5], [3, -0.4]], np.float32))
    assert part.labels.tolist() == [0, 1]
    assert part.labels.dtype == np.int64
    assert names == ()


def test_words_as_labels_are_classes_in_sorted_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,kind\n1,dog\n2,cat\n3,dog\n")
    part, names = read_csv(tmp_path / "a.csv", "kind")
    assert (part.labels.tolist(), names) == ([1, 0, 1], ("cat", "dog"))


def test_labels_with_a_point_are_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,label\n1,0.5\n2,1\n")
    assert read_csv(tmp_path / "a.csv")[0].labels.dtype == np.float32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n", "no column `label`"),
        ("", "no column `label`"),
        ("a,label\n", "is empty"),
        ("a,label\n1,0\nx,1\n", r"a\.csv:3: column `a` holds `x`"),
        ("a,label\nnan,0\n", r"a\.csv:2: column `a` holds `nan`"),
        ("a,label\n1\n", r"a\.csv:2 has 1 cells where the header has 2"),
        ("a,label\n1,dog\n2,\n", "empty label"),
        ("a,label\n1,-1\n", "label -1"),
    ],
)
def test_a_broken_csv_is_named_by_line_and_column(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=expected):
        read_csv(tmp_path / "a.csv")


def test_a_line_in_a_csv_error_counts_quoted_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,label\n1,"big\ndog"\nx,cat\n')
    with pytest.raises(DataError, match=r"a\.csv:4"):
        read_csv(tmp_path / "a.csv")


def write_images(folder: Path, *names: str) -> None:
    from PIL import Image

    for shade, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 6), shade, np.uint8)).save(path)


def test_a_folder_of_images_is_one_class_for_each_sub_folder(tmp_path: Path) -> None:
    write_images(tmp_path, "dog/a.png", "cat/a.png", "cat/b.png")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    part, test, names = read_image_folder(tmp_path)
    assert names == ("cat", "dog")
    assert part.labels.tolist() == [0, 0, 1]
    assert [int(part.features[i][0, 0]) for i in range(3)] == [1, 2, 0]
    assert test is None


def test_a_train_and_a_test_folder_are_the_parts(tmp_path: Path) -> None:
    write_images(tmp_path, "train/a/1.png", "train/b/1.png", "test/b/1.png")
    _, test, _ = read_image_folder(tmp_path)
    assert test is not None
    assert test.labels.tolist() == [1]
    write_images(tmp_path, "test/c/1.png")
    with pytest.raises(DataError, match="class `c`"):
        read_image_folder(tmp_path)


def test_an_image_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"no image")
    part, _, _ = read_image_folder(tmp_path)
    with pytest.raises(DataError, match=r"x\.png"):
        part.features[0]


def test_an_empty_folder_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no images"):
        read_image_folder(tmp_path)


def test_without_pillow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DataError, match=r"edgetrain\[vision\]"):
        read_image_folder(tmp_path)
