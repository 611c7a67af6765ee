"""`edgetrain recipes copy` and `validate`."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from edgetrain.cli.entry import main
from edgetrain.recipes import list_recipes, load_recipe
from edgetrain_tuner import disk


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", list_recipes())
def test_a_copy_is_the_same_recipe_and_is_valid(name: str) -> None:
    assert main(["recipes", "copy", name, "mine.toml"]) == 0
    assert main(["recipes", "validate", "mine.toml"]) == 0
    mine, shipped = json.loads(load_recipe("mine.toml").to_json()), json.loads(load_recipe(name).to_json())
    assert mine == {**shipped, "name": "mine"}


def test_without_a_file_the_copy_has_the_recipes_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "copy", "digits"]) == 0
    assert Path("digits.toml").read_text().startswith("# digits:")
    captured = capsys.readouterr()
    assert captured.out == "copied digits to digits.toml\n"
    assert captured.err == "hint: change it, and train with `edgetrain fit digits.toml`\n"


def test_a_copy_into_a_folder_keeps_its_name() -> None:
    Path("recipes").mkdir()
    assert main(["recipes", "copy", "digits", "recipes"]) == 0
    assert Path("recipes/digits.toml").is_file()


def test_a_file_that_is_there_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text("precious")
    assert main(["recipes", "copy", "digits", "mine.toml"]) == 2
    assert "`mine.toml` is there already" in capsys.readouterr().err
    assert Path("mine.toml").read_text() == "precious"


def test_a_full_disk_leaves_nothing_that_a_second_try_trips_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", refuse)
        assert main(["recipes", "copy", "digits", "mine.toml"]) == 6
    assert list(Path().iterdir()) == []
    assert main(["recipes", "copy", "digits", "mine.toml"]) == 0


@pytest.mark.parametrize("words", [["copy"], ["copy", "a", "b", "c"], ["validate"], ["copy", "digits", "mine.txt"]])
def test_words_that_are_missing_or_too_many_are_answered_with_an_example(words: list[str]) -> None:
    assert main(["recipes", *words]) == 2


def test_every_mistake_of_a_file_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text('extends = "digits"\n[train]\nepoch = 3\nbatch = 0\n[modle]\n')
    assert main(["recipes", "validate", "mine.toml"]) == 2
    told = capsys.readouterr().err
    assert "has 3 mistakes" in told
    for mistake in ("`train.epoch` is not a known key", "`train.batch` is `0`", "`modle` is not a known key"):
        assert mistake in told
