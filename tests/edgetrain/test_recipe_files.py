"""Recipes on top of others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from edgetrain.errors import UsageError
from edgetrain.recipes import load_recipe


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder / f"{next(iter(files))}.toml"


def test_a_recipe_changes_only_what_it_says(tmp_path: Path) -> None:
    path = write(tmp_path, mine='extends = "digits"\n[train]\nepochs = 3\n')
    digits, mine = load_recipe("digits"), load_recipe(path)
    train = dataclasses.replace(digits.train, epochs=3)
    assert mine == dataclasses.replace(digits, name="mine", train=train, expect=None)


def test_overrides_come_on_top_of_what_a_recipe_extends(tmp_path: Path) -> None:
    path = write(tmp_path, mine='extends = "digits"\n[train]\nepochs = 3\n')
    recipe = load_recipe(path, ["train.epochs=5", "train.batch=4"])
    assert (recipe.train.epochs, recipe.train.batch, recipe.train.optimizer) == (5, 4, "adam")


def test_a_list_replaces_the_one_below_and_tables_within_tables_are_joined(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        top='extends = "./below.toml"\n[data]\nmean = [0.5]\n[data.audio]\nmels = 20\n',
        below='extends = "digits"\n[data]\nmean = [0.1, 0.2]\nstd = [1.0]\n[data.audio]\nseconds = 2.0\n',
    )
    data = load_recipe(path).data
    assert (data.mean, data.std, data.audio.mels, data.audio.seconds) == ((0.5,), (1.0,), 20, 2.0)


def test_a_path_counts_from_the_file_that_holds_it(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    write(tmp_path / "base", base='[model]\nsource = "model.onnx"\n[data]\nsource = "photos"\n')
    path = write(tmp_path, mine='extends = "base/base.toml"\n[data]\nsource = "other"\n')
    recipe = load_recipe(path)
    assert recipe.model.source == str(tmp_path / "base" / "model.onnx")
    assert recipe.data.source == str(tmp_path / "other")


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a": 'extends = "a.toml"'}, "a.toml extends a.toml"),
        ({"a": 'extends = "b.toml"', "b": 'extends = "./a.toml"'}, "a.toml extends b.toml extends a.toml"),
        ({"a": 'extends = "dgits"'}, "no recipe `dgits` (did you mean `digits`?)"),
        ({"a": 'extends = "b.toml"'}, "there is no recipe file"),
        ({"a": "extends = 3"}, "is `3`, expected a recipe's name or path"),
        ({"a": 'extends = "b.toml"', "b": "[train"}, "b.toml is not valid TOML"),
        ({"a": 'extends = "digits"\n[train]\nepoch = 3'}, "`train.epoch` is not a known key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_recipe_that_cannot_be_put_together_says_why(tmp_path: Path, files: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_recipe(write(tmp_path, **files))
    assert told in str(caught.value)
