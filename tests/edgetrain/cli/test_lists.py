"""`targets`, `recipes` and `doctor`: what they say about what is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgetrain.cli import doctor
from edgetrain.cli.entry import main
from edgetrain.recipes import Recipe, list_recipes, load_recipe
from edgetrain.targets.profile import list_targets, load_target


@pytest.mark.parametrize("name", list_targets())
def test_a_target_is_shown_with_the_source_of_every_number(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", name]) == 0
    shown = capsys.readouterr().out
    target = load_target(name)
    assert shown.startswith(f"{name}: {target.summary}\n")
    lines = shown.splitlines()
    for key, source in target.sources.items():
        row = next(i for i, line in enumerate(lines) if line.startswith(f"{key} = "))
        assert lines[row + 1].strip() == source


def test_targets_as_json_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "--json"]) == 0
    assert [target["name"] for target in json.loads(capsys.readouterr().out)] == list(list_targets())


def test_recipes_are_listed_with_a_summary_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "--json"]) == 0
    summaries = json.loads(capsys.readouterr().out)
    assert tuple(summaries) == list_recipes()
    assert all(summary and ":" not in summary for summary in summaries.values())


@pytest.mark.parametrize("name", list_recipes())
def test_what_a_recipe_shows_sets_the_same_recipe_again(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", name]) == 0
    values = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
    overrides = [value for value in values if not value.endswith(("={}", "="))]
    assert load_recipe(name, overrides) == load_recipe(name)


def test_a_recipe_as_json_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "digits", "train.batch=4", "--json"]) == 0
    assert Recipe.from_json(capsys.readouterr().out) == load_recipe("digits", ["train.batch=4"])


def test_doctor_has_a_fix_for_every_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With nothing where it should be."""

    def dead(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "ImportError: no TVM")

    monkeypatch.setattr(doctor, "_PACKAGES", ("no-such-package",))
    monkeypatch.setattr(doctor, "_CLEAR_REFS", tmp_path / "gone" / "clear_refs")
    monkeypatch.setattr(doctor, "_LEAST_FREE_BYTES", 10**30)
    monkeypatch.setattr(subprocess, "run", dead)
    assert main(["doctor", "--json"]) == 0
    symptoms = {symptom["name"]: symptom for symptom in json.loads(capsys.readouterr().out)}
    warned = {name for name, symptom in symptoms.items() if not symptom["is_ok"]}
    assert warned >= {"no-such-package", "tvm loads", "peak memory", "cache disk", "disk here"}
    assert all(symptoms[name]["fix"] for name in warned)


def test_doctor_shows_the_fix_below_the_warning() -> None:
    fine = doctor.Symptom(name="python", is_ok=True, text="3.11")
    broken = doctor.Symptom(name="tvm", is_ok=False, text="not installed", fix="pip install apache-tvm")
    assert doctor.to_text([fine, broken]) == (
        "ok    python  3.11\nwarn  tvm     not installed\n              fix: pip install apache-tvm\n"
    )


@pytest.mark.compile
def test_doctor_finds_this_machine_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    symptoms = {symptom["name"]: symptom for symptom in json.loads(capsys.readouterr().out)}
    for name in ("python", "apache-tvm", "tvm loads", "compiler", "cross compiler"):
        assert symptoms[name]["is_ok"], symptoms[name]
    assert symptoms["python"]["text"] == sys.version.split()[0]
