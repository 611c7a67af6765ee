"""Claims about finding and loading the data a recipe names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.reading import Reading
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


def test_classes_keep_the_numbers_of_the_run_that_learned_them(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,label\n1,words\n2,words\n")
    learned = Reading(class_names=("chirps", "words"))
    dataset = load_dataset(DataSection(source=str(tmp_path / "own.csv"), validation=0.0), reading=learned)
    assert dataset.train.labels.tolist() == [1, 1]
    assert dataset.class_names == ("chirps", "words")


def test_a_class_that_the_run_never_saw_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,label\n1,word\n2,words\n")
    with pytest.raises(DataError, match=r"the class `word`.*did you mean `words`"):
        load_dataset(DataSection(source=str(tmp_path / "own.csv")), reading=Reading(class_names=("chirps", "words")))


def write_csv(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_one_class_is_nothing_to_learn_from_but_can_be_evaluated(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", "a,label\n1,cat\n2,cat\n")
    with pytest.raises(DataError, match=r"all samples .* are of one class, `cat`"):
        load_dataset(DataSection(source=source))
    learned = Reading(class_names=("bird", "cat"), columns=("a",))
    assert load_dataset(DataSection(source=source, validation=0.0), reading=learned).train.labels.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("text", "limit", "told"),
    [
        ("a,label\n1,0\n2,0\n", None, "all 2 training samples have the label 0"),
        ("a,label\n1,x\n2,y\n3,y\n4,y\n5,z\n6,z\n", None, "one training sample only: `x`"),
        ("a,label\n1,x\n2,y\n3,z\n", 2, "fewer training samples (2) than classes (3)"),
        ("a,label\n1,0\n2,1\n3,0\n", 2, "2 of 3 samples are used (data.limit); `data.limit=none` uses all"),
        ("a,label\n1,0\n2,1\n3,0\n", 3, None),
    ],
)
def test_what_cannot_work_well_is_said(text: str, limit: int | None, told: str | None, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", text)
    notes = load_dataset(DataSection(source=source, limit=limit, validation=0.0)).notes
    assert any(told in note for note in notes) if told else not notes


def test_a_recipe_s_own_data_is_limited_without_a_word() -> None:
    assert not load_dataset(DataSection(source="bundled:digits", limit=100)).notes


def test_folders_that_are_no_classes_are_named(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    for name in ("cat/1.png", "dog/1.png"):
        (tmp_path / name).parent.mkdir()
        image.new("L", (2, 2)).save(tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("no image")
    dataset = load_dataset(DataSection(source=str(tmp_path), validation=0.0))
    assert dataset.class_names == ("cat", "dog")
    assert "no class: `empty`, `notes`" in dataset.notes[0]


def test_a_stratified_split_is_the_default_and_can_be_switched_off(tmp_path: Path) -> None:
    rows = "".join(f"{i},{'rare' if i < 10 else 'usual'}\n" for i in range(100))
    source = write_csv(tmp_path / "a.csv", "a,label\n" + rows)
    held_out = load_dataset(DataSection(source=source, validation=0.2)).validation
    assert held_out is not None
    assert held_out.labels.tolist().count(0) == 2
    whole = load_dataset(DataSection(source=source, validation=0.2, stratify=False))
    assert len(whole.train) == 80


def test_a_table_is_evaluated_with_the_columns_words_and_fills_of_the_run(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "a.csv", "a;city;label\n1,5;Rome;x\n;Bern;y\n4,5;Rome;y\n")
    learned = load_dataset(DataSection(source=train, missing="mean", validation=0.0)).reading
    assert learned == Reading(
        class_names=("x", "y"), columns=("a", "city"), fills=(3.0, 0.0), categories={"city": ("Bern", "Rome")}
    )
    assert Reading.from_json(learned.to_json(), where="there") == learned
    other = write_csv(tmp_path / "b.csv", "city,label,a\nRome,y,\n")
    found = load_dataset(DataSection(source=other, missing="mean", validation=0.0), reading=learned)
    assert found.train.features[0].tolist() == [3, 0, 1]
    assert found.train.labels.tolist() == [1]
    assert found.reading == learned
