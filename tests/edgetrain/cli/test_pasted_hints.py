"""From an error to the command that works, by pasting what the error says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.edgetrain.cli.conftest import Command
from tests.edgetrain.test_readme import ROOT

pytestmark = pytest.mark.compile


def hints(output: str) -> list[str]:
    found: list[str] = json.loads(output)["commands"]
    return found


def test_each_way_out_of_a_budget_that_is_too_small_works_when_it_is_pasted(command: Command, tmp_path: Path) -> None:
    words = ("plan", "digits", "--budget", "600kB", "--json")
    failed = command(*words, cwd=tmp_path)
    assert failed.returncode == 3
    ways = hints(failed.stdout)
    assert ways[0].startswith("--budget ")  # the others are looked for as long as there is time
    for way in ways:
        asked = [word for word in words if not way.startswith("--budget") or word not in ("--budget", "600kB")]
        assert command(*asked, *shlex.split(way), cwd=tmp_path).returncode == 0, way


def test_a_run_keeps_the_least_budget_that_the_hint_names(command: Command, tmp_path: Path) -> None:
    words = ("digits", "train.epochs=1", "--json")
    least, *_ = hints(command("plan", *words, "--budget", "600kB", cwd=tmp_path).stdout)
    report = json.loads(command("fit", *words, *shlex.split(least), cwd=tmp_path).stdout)
    assert 0 < report["process_peak_bytes"] <= report["budget_bytes"]


def test_the_verb_that_was_meant_works_when_it_is_pasted(command: Command, tmp_path: Path) -> None:
    failed = command("estimate", "digits", "--budget", "1200kB", "--json", cwd=tmp_path)
    (pasted,) = hints(failed.stdout)
    assert pasted == "edgetrain plan digits --budget 1200kB --json"
    assert command(*shlex.split(pasted)[1:], cwd=tmp_path).returncode == 0


def test_a_flag_of_another_tool_works_as_the_key_that_is_named(command: Command, tmp_path: Path) -> None:
    failed = command("plan", "digits", "--batch-size", "16", "--json", cwd=tmp_path)
    assert hints(failed.stdout) == ["train.batch=16"]
    planned = command("plan", "digits", *hints(failed.stdout), cwd=tmp_path)
    assert planned.returncode == 0


def test_a_model_without_data_trains_on_what_the_hint_names(command: Command, mlp: Path, tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((64, 6)).astype(np.float32), y=rng.integers(0, 3, 64))
    failed = command("fit", mlp, "--json", cwd=tmp_path)
    assert failed.returncode == 2
    _, pasted = hints(failed.stdout)
    assert command(*shlex.split(pasted)[1:], "train.epochs=1", cwd=tmp_path).returncode == 0


def test_a_head_that_is_too_small_and_to_be_kept_is_replaced_as_the_hint_says(
    command: Command, mlp: Path, tmp_path: Path
) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    labels = np.arange(64) % 5
    np.savez(tmp_path / "five.npz", x=rng.standard_normal((64, 6)).astype(np.float32), y=labels)
    words = ("fit", mlp, "data.source=five.npz", "train.epochs=1", "model.keep_head=true")
    failed = command(*words, "--json", cwd=tmp_path)
    assert failed.returncode == 5, failed.stderr
    assert command(*words, *hints(failed.stdout), cwd=tmp_path).returncode == 0


def test_a_size_that_the_model_does_not_take_becomes_the_one_that_the_hint_names(
    command: Command, tmp_path: Path
) -> None:
    pictures = pytest.importorskip("PIL.Image", reason="needs `pip install pillow`")
    rng = np.random.Generator(np.random.PCG64(0))
    for name in ("dark", "light"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            grey = rng.integers(0, 256, (12, 9), np.uint8)
            pictures.fromarray(grey).save(tmp_path / "photos" / name / f"{number}.png")
    words = ("fit", "zoo:digits-cnn", "data.source=photos", "train.batch=8", "train.epochs=1")
    failed = command(*words, "data.resize=[32,32]", "--json", cwd=tmp_path)
    assert failed.returncode == 5, failed.stderr
    (pasted,) = hints(failed.stdout)
    assert pasted == "'data.resize=[8,8]'"
    assert command(*words, *shlex.split(pasted), cwd=tmp_path).returncode == 0


def test_the_error_on_the_page_is_the_one_that_is_told(command: Command, tmp_path: Path) -> None:
    """Word for word; sizes may differ a little between machines, whose kernels take more or less scratch memory."""
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(error: no plan fits 900kB;.*?)```", text, re.DOTALL)
    told = command("plan", "digits", "--budget", "900kB", "--quiet", cwd=tmp_path).stderr
    size = re.compile(r"[\d.]+(?=kB)|\d+(?= bytes)")
    pairs = zip(shown.splitlines(), told.splitlines(), strict=True)
    # A machine that is busy has no time to look for every way out, and says so.
    compared = [(s, t) for s, t in pairs if not s.startswith("why:") and "in the time there was" not in t]
    shown_lines, told_lines = map(list, zip(*compared, strict=True))
    assert len(told_lines) >= 5
    assert [size.sub("N", line) for line in told_lines] == [size.sub("N", line) for line in shown_lines]
    ours = [float(number) for line in told_lines for number in size.findall(line)]
    theirs = [float(number) for line in shown_lines for number in size.findall(line)]
    assert ours == pytest.approx(theirs, rel=0.05)
