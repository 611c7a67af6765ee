"""Claims about finding and loading the data a recipe names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.sources import Roots
from edgetrain.errors import DataError
from edgetrain.locate import data_path
from edgetrain.recipes import DataSection, TextSection


def test_the_bundled_digits_are_1797_images_with_every_digit_in_both_parts() -> None:
    dataset = load_dataset(DataSection(source="bundled:digits", validation=0.0))
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test), dataset.classes) == (1442, 355, 10)
    assert set(dataset.train.labels.tolist()) == set(dataset.test.labels.tolist()) == set(range(10))
    assert dataset.train.features[0].shape == (8, 8)


def test_no_digit_of_the_test_part_is_in_the_training_part() -> None:
    with np.load(data_path("digits.npz"), allow_pickle=False) as file:
        train = {image.tobytes() for image in file["x_train"]}
        assert not train & {image.tobytes() for image in file["x_test"]}


def test_the_bundled_data_comes_with_its_licence() -> None:
    assert "CC BY 4.0" in data_path("digits.LICENSE.md").read_text(encoding="utf-8")


def test_a_debian_dataset_that_is_not_installed_names_its_package(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset(DataSection(source="debian:fashion-mnist"), roots=Roots(share=tmp_path))
    assert caught.value.fix == "apt-get install -y dataset-fashion-mnist"


@pytest.mark.parametrize("source", ["bundled:digit", "debian:fashion"])
def test_an_unknown_name_is_answered_with_the_close_ones(source: str) -> None:
    with pytest.raises(DataError, match="did you mean"):
        load_dataset(DataSection(source=source))


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is missing"):
        load_dataset(DataSection(source=str(tmp_path / "no.npz")))


def test_an_unknown_ending_is_a_data_error_unless_the_format_is_given(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("a,label\n1,0\n2,1\n")
    with pytest.raises(DataError, match="format"):
        load_dataset(DataSection(source=str(path)))
    assert load_dataset(DataSection(source=str(path), format="csv", validation=0.0)).classes == 2


def test_the_format_follows_from_what_is_there(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=np.arange(4))
    (tmp_path / "a.csv").write_text("a,label\n1,cat\n2,dog\n")
    assert load_dataset(DataSection(source=str(tmp_path / "a.npz"))).classes == 4
    assert load_dataset(DataSection(source=str(tmp_path / "a.csv"))).class_names == ("cat", "dog")


def test_a_test_share_and_the_format_of_a_folder_work_together(tmp_path: Path) -> None:
    for kind in ("ham", "spam"):
        (tmp_path / "texts" / kind).mkdir(parents=True)
        for i in range(10):
            (tmp_path / "texts" / kind / f"{i}.txt").write_text(f"{kind} {i}")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nham\nspam\n")
    text = TextSection(vocabulary=str(vocabulary), length=8)
    dataset = load_dataset(DataSection(source=str(tmp_path / "texts"), test=0.25, validation=0.2, text=text))
    assert dataset.validation is not None
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (12, 3, 5)
    assert dataset.class_names == ("ham", "spam")
    for row in range(5):
        assert dataset.test.features[row]["input_ids"][1] == 4 + dataset.test.labels[row]
