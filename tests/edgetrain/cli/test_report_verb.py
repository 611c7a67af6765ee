"""`report`, `compare` and `fit --watch` on runs that really trained."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.run.learned.learned import read_learned
from tests.edgetrain.cli.conftest import COMMAND, SHORT, Command

pytestmark = pytest.mark.compile


def test_a_run_leaves_its_page_and_what_was_learned(short_run: Path) -> None:
    page = (short_run / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r'<section id="(\w+)"', page)) == {
        *("training", "memory", "mistakes", "classes", "calibration", "cost", "provenance"),
    }
    found, report = read_learned(short_run), json.loads((short_run / "report.json").read_text())
    assert found is not None
    assert found.classes is not None
    hits = sum(cell.count for cell in found.classes.cells if cell.actual == cell.predicted)
    assert hits / found.samples == pytest.approx(report["test_accuracy"])
    assert all(sample.picture for sample in found.hardest)  # digits are images


def test_report_writes_the_same_page_again_elsewhere(command: Command, short_run: Path, tmp_path: Path) -> None:
    done = command("report", short_run, "--out", "page.html", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"run": str(short_run), "report": "page.html"}
    again = (tmp_path / "page.html").read_text(encoding="utf-8")
    first = (short_run / "report.html").read_text(encoding="utf-8")
    assert again.replace(str(short_run), "runs/digits") == first


def test_report_of_no_run_is_refused(command: Command, tmp_path: Path) -> None:
    done = command("report", "nowhere", cwd=tmp_path)
    assert done.returncode == 5
    assert "is not a run folder" in done.stderr


def test_compare_prints_a_table_and_writes_a_page(command: Command, short_run: Path, tmp_path: Path) -> None:
    done = command("compare", short_run, short_run, "--out", "c.html", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["differences"] == {}
    assert "Training loss" in (tmp_path / "c.html").read_text(encoding="utf-8")
    text = command("compare", short_run, short_run, cwd=tmp_path)
    assert "test accuracy" in text.stdout
    assert command("compare", short_run, cwd=tmp_path).returncode == 2


def test_a_run_that_is_watched_has_the_same_bits(
    short_run: Path, tmp_path: Path, command_environment: Mapping[str, str]
) -> None:
    words = ("fit", *SHORT, "--budget", "1MB", "--watch", "--quiet")
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=tmp_path, env=dict(command_environment), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = ""
    while "http://" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    address = said[said.index("http://") :].split()[0]
    with urllib.request.urlopen(f"{address}state", timeout=10) as answer:
        assert "digits" in json.load(answer)["html"]
    assert process.wait() == 0, process.stderr.read()
    process.stderr.close()
    reports = (tmp_path / "runs" / "digits", short_run)
    first, second = (json.loads((folder / "report.json").read_text())["parameters_sha256"] for folder in reports)
    assert first == second


def test_nothing_that_draws_pages_is_loaded_before_memory_was_measured() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, edgetrain.pipeline.fit; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert [name for name in loaded if name.startswith("edgetrain.report.")] == ["edgetrain.report.keep_page"]
    assert "http.server" not in loaded
