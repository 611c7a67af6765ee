"""`edgetrain tune`: when to stop, how far it is, and where it cannot measure."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import pytest

from edgetrain.cli.console import Console
from edgetrain.cli.entry import main
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.cli.tune import Tuning, allowance_of, minutes
from edgetrain.errors import UsageError
from tests.edgetrain.tuning.test_tune_device import scripted_emulator


def test_a_foreign_target_ends_with_code_6(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "digits", "--target", "cortex-m7", "--json"]) == 6
    error = json.loads(capsys.readouterr().out)
    assert "cannot be measured here" in error["what"]


def test_a_runner_for_this_machine_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "digits", "--runner", "ssh pi@host", "--json"]) == 2
    assert "the target is this machine" in json.loads(capsys.readouterr().out)["what"]


@pytest.mark.compile
def test_a_runner_that_does_not_exist_ends_with_code_6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edgetrain.pipeline.job.schedules_dir", lambda: tmp_path)
    command = ["tune", "digits", "train.batch=8", "--target", "raspberry-pi-4", "--runner", "no-such-command pi"]
    assert main([*command, "--trials", "4", "--json"]) == 6
    error = json.loads(capsys.readouterr().out)
    assert error["what"] == "`no-such-command` of --runner does not start"
    assert "ssh pi@host" in error["fix"]


@pytest.mark.compile
@pytest.mark.parametrize(("error", "code"), [("0", 0), ("0.5", 1)])
def test_an_emulated_check_ends_with_its_verdict(
    error: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted_emulator(tmp_path, error=error)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("edgetrain.pipeline.job.schedules_dir", lambda: tmp_path)
    command = ["tune", "digits", "train.batch=8", "--target", "raspberry-pi-4", "--runner", "emulator"]
    assert main([*command, "--trials", "2"]) == code
    said = capsys.readouterr()
    assert "raspberry-pi-4, emulated: checked, not timed" in said.out
    assert "uses them" not in said.err


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_minutes_are_a_number_above_zero(text: str) -> None:
    with pytest.raises(UsageError, match="minutes"):
        minutes(text)


def test_one_of_two_limits_is_given() -> None:
    with pytest.raises(UsageError, match="both say when to stop"):
        allowance_of(argparse.Namespace(trials=3, minutes=1.0, deep=False))
    assert allowance_of(argparse.Namespace(trials=3, minutes=None, deep=False)).trials == 3
    assert allowance_of(argparse.Namespace(trials=None, minutes=2.0, deep=False)).seconds == 120.0
    assert allowance_of(argparse.Namespace(trials=None, minutes=None, deep=False)).seconds == 180.0


@pytest.mark.parametrize("limit", [{"trials": 3, "minutes": None}, {"trials": None, "minutes": 1.0}])
@pytest.mark.parametrize("deep", [False, True])
def test_a_deep_search_keeps_to_either_limit(limit: dict[str, float | None], deep: bool) -> None:
    assert allowance_of(argparse.Namespace(**limit, deep=deep)).deep is deep


@pytest.mark.compile
def test_a_deep_search_says_what_ranked_its_candidates(
    mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edgetrain.tuning.tune.deep_cost_model", lambda: "random")
    monkeypatch.setattr("edgetrain.pipeline.job.schedules_dir", lambda: tmp_path)
    assert main(["tune", str(mlp), "train.batch=8", "--trials", "4", "--deep", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["deep"] == "random"
    assert 0 < report["trials"] <= 4


def test_progress_is_a_line_for_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    tuning = Tuning(StageProgress(console), console)
    tuning("importing the model", 0, 0)
    for done in range(1, 41):
        tuning("tuning kernels", done, 40)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["importing the model", "tuning kernels"]
    assert [line.partition(" tuned, ")[0] for line in lines[2:]] == [f"{n}0 %" for n in range(1, 10)]
    assert all(line.endswith(" left") for line in lines[2:])
