"""Claims about reading folders of images: what was written comes back, and what is broken is named."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.images import read_image_folder
from edgetrain.errors import DataError


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
