"""`plan`, `check` and `inspect` of a sparse update choose what to train as `fit` does: on the recipe's own data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.edgetrain.cli.conftest import Command

SPARSE = ("digits", "update.mode=sparse", "update.budget=40kB", "data.limit=256", "train.batch=8")

pytestmark = pytest.mark.compile


def test_inspect_names_what_was_chosen(command: Command, tmp_path: Path) -> None:
    done = command("inspect", *SPARSE, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    parameters = json.loads(done.stdout)["parameters"]
    trained = [p["name"] for p in parameters if p["trained"]]
    assert 0 < len(trained) < len(parameters)


def test_plan_needs_less_than_training_everything(command: Command, tmp_path: Path) -> None:
    peaks = []
    for words in (SPARSE, ("digits", "train.batch=8")):
        done = command("plan", *words, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        peaks.append(json.loads(done.stdout)["peak_bytes"])
    assert peaks[0] < peaks[1]


def test_check_compares_the_gradients_of_what_was_chosen(command: Command, tmp_path: Path) -> None:
    done = command("check", *SPARSE, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    findings = {f["name"]: f["is_ok"] for f in json.loads(done.stdout)["findings"]}
    assert findings["gradients"]


@pytest.mark.parametrize("verb", ["plan", "check", "inspect"])
def test_a_sparse_update_without_data_says_that_it_needs_some(
    verb: str, command: Command, mlp: Path, tmp_path: Path
) -> None:
    done = command(verb, mlp, "update.mode=sparse", "update.budget=1kB", cwd=tmp_path)
    assert done.returncode == 2
    assert "needs data to choose what to train" in done.stderr
    assert "data.source=PATH" in done.stderr
