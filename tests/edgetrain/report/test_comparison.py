from __future__ import annotations

import json
from pathlib import Path

from edgetrain.report.compare_page import compare_page
from edgetrain.report.comparison import compare_runs
from edgetrain.report.page import to_html
from edgetrain.report.run_record import read_run
from tests.edgetrain.report.run_folders import HOSTILE, write_run


def test_only_what_differs_in_the_recipes_is_listed(tmp_path: Path) -> None:
    other = {"name": "made-up", "metric": "accuracy", "train": {"epochs": 4, "batch": 16, "seed": 3}}
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", recipe=other, budget_bytes=None)]
    comparison = compare_runs([read_run(run) for run in runs])
    assert comparison.differences == {"train.batch": (8, 16), "train.seed": (None, 3)}
    found = json.loads(comparison.to_json())
    assert found["format"] == "edgetrain.comparison/1"
    assert [run["budget_bytes"] for run in found["runs"]] == [100_000, None]
    assert found["runs"][0]["scores"] == {"accuracy": 0.875, "loss": 0.4}


def test_the_table_has_a_column_for_each_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", process_peak_bytes=101_000)]
    lines = compare_runs([read_run(run) for run in runs]).to_text().splitlines()
    assert lines[0].split() == list(map(str, runs))
    (memory,) = (line for line in lines if line.startswith("memory, measured"))
    assert memory.endswith(" 101kB, EXCEEDED")
    assert "98.3kB, kept" in memory


def test_what_was_measured_and_what_was_planned_are_of_the_same(tmp_path: Path) -> None:
    """Of the process where the system tells what it grew by, else of the arena."""
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", process_peak_bytes=None)]
    lines = compare_runs([read_run(run) for run in runs]).to_text().splitlines()
    (measured,) = (line for line in lines if line.startswith("memory, measured"))
    (planned,) = (line for line in lines if line.startswith("memory, planned"))
    assert measured.split()[2:] == ["98.3kB,", "kept", "94.21kB,", "kept"]
    assert planned.split()[2:] == ["98kB", "95kB"]


def test_the_page_escapes_what_recipes_say_and_names_runs_with_equal_bits(tmp_path: Path) -> None:
    hostile = {"name": HOSTILE, "train": {"epochs": HOSTILE}}
    runs = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b"),
        write_run(tmp_path / "c", recipe=hostile, parameters_sha256="d" * 64),
    ]
    page = to_html(compare_page([read_run(run) for run in runs]))
    assert HOSTILE not in page
    assert f"{runs[0]} and {runs[1]} have the same trained parameters, bit for bit." in page
