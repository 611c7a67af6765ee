"""Claims about reading folders of images: what was written comes back, and what is broken is named."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.images import read_image_folder
from edgetrain.errors import DataError


def write_images(folder: Path, *names: str) -> Path:
    from PIL import Image

    for shade, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 6), shade, np.uint8)).save(path)
    return folder


def test_a_folder_of_images_is_one_class_for_each_sub_folder(tmp_path: Path) -> None:
    write_images(tmp_path, "dog/a.png", "cat/a.png", "cat/more/b.png")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    found = read_image_folder(tmp_path)
    assert found.class_names == ("cat", "dog")
    assert found.train.labels.tolist() == [0, 0, 1]
    assert [int(found.train.features[i][0, 0]) for i in range(3)] == [1, 2, 0]
    assert found.test is None


def test_a_train_a_val_and_a_test_folder_are_the_parts(tmp_path: Path) -> None:
    write_images(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/1.png", "test/b/1.png")
    found = read_image_folder(tmp_path)
    assert found.validation is not None
    assert found.test is not None
    assert found.validation.labels.tolist() == [0]
    assert found.test.labels.tolist() == [1]
    write_images(tmp_path, "test/c/1.png")
    with pytest.raises(DataError, match="class `c`"):
        read_image_folder(tmp_path)


def test_classes_called_train_and_test_are_classes(tmp_path: Path) -> None:
    found = read_image_folder(write_images(tmp_path, "train/1.png", "plane/1.png"))
    assert found.class_names == ("plane", "train")


def test_what_programs_leave_behind_and_empty_folders_are_no_classes(tmp_path: Path) -> None:
    write_images(tmp_path, "cat/1.png", "dog/1.png", ".ipynb_checkpoints/1.png", "__MACOSX/1.png")
    write_images(tmp_path, "cat/.ipynb_checkpoints/1.png")
    (tmp_path / "cat" / "._1.png").write_bytes(b"what macOS keeps about 1.png")
    (tmp_path / "empty").mkdir()
    found = read_image_folder(tmp_path)
    assert found.class_names == ("cat", "dog")
    assert len(found.train) == 2


def test_a_glob_leaves_images_out(tmp_path: Path) -> None:
    write_images(tmp_path, "cat/1.png", "cat/2.png", "dog/1.png", "old/1.png")
    found = read_image_folder(tmp_path, exclude=("*/2.png", "old/*"))
    assert (found.class_names, len(found.train)) == (("cat", "dog"), 2)


def test_files_that_cannot_be_read_are_all_named_before_anything_else_happens(tmp_path: Path) -> None:
    write_images(tmp_path, "a/0.png", "b/0.png", "b/cut.jpg")
    whole = (tmp_path / "b" / "cut.jpg").read_bytes()
    (tmp_path / "b" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    for i in range(6):
        (tmp_path / "a" / f"x{i}.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"7 images cannot be read: .*x4\.png and 2 more") as caught:
        read_image_folder(tmp_path)
    assert "data.corrupt=skip" in caught.value.fix
    found = read_image_folder(tmp_path, skip_broken=True)
    assert len(found.train) == 2
    assert "7 files that cannot be read are left out" in found.notes[0]


def test_images_outside_of_a_class_are_counted(tmp_path: Path) -> None:
    assert "left out: 2" in read_image_folder(write_images(tmp_path, "cat/1.png", "1.png", "2.png")).notes[0]


def test_pictures_of_kinds_that_are_not_read_are_counted(tmp_path: Path) -> None:
    write_images(tmp_path, "cat/1.png", "dog/1.png")
    for name in ("cat/IMG_1.HEIC", "cat/IMG_2.heic", "dog/1.avif", "dog/.trash/2.avif", "dog/3.jfif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (note,) = read_image_folder(tmp_path, exclude=["*.jfif"]).notes
    assert "left out: 1 .avif, 2 .heic;" in note


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
    with pytest.raises(DataError, match=r"images need Pillow") as caught:
        read_image_folder(tmp_path)
    assert caught.value.fix == "pip install 'edgetrain[vision]'"
