"""About a minute of fuzzing with a fixed seed: every reader's harness runs, reaches its reader, and finds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.harness import FOLDER, reader_names

_RUNS = 400  # by count, not by time: the same inputs on every machine


@pytest.mark.slow
def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="needs atheris: pip install atheris (wheels for Linux on x86-64)")
    table = tmp_path / "table.json"
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "all",
        "--runs",
        str(_RUNS),
        "--seconds",
        "3600",
        "--seed",
        "1",
        "--timeout",
        "120",
    ]
    command += ["--findings", str(tmp_path / "findings"), "--json", str(table)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=FOLDER.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    readers = {row["reader"]: row for row in json.loads(table.read_text(encoding="utf-8"))}
    assert set(readers) == set(reader_names())
    idle = [name for name, row in readers.items() if not row["executions"] or not row["features"]]
    assert not idle, f"nothing of these was reached: {idle}"


@pytest.mark.slow
def test_a_finding_is_kept_and_fails_the_run(tmp_path: Path) -> None:
    """A package in front of ours, in which a reader lets an undocumented error out."""
    pytest.importorskip("atheris", reason="needs atheris: pip install atheris (wheels for Linux on x86-64)")
    findings = tmp_path / "findings"
    (tmp_path / "sitecustomize.py").write_text(
        "import edgetrain.run.limits.exchange as exchange\nexchange.BROKEN = ()\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "tests.fuzz", "live_exchange", "--seconds", "5", "--findings", str(findings)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=FOLDER.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    assert [path for path in (findings / "live_exchange").iterdir() if path.suffix != ".txt"]
