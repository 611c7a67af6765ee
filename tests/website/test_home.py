"""What the home page says about numbers is what the README says, and the run folder is described as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME, README = ROOT / "docs" / "index.md", ROOT / "README.md"


def rows(page: Path) -> list[str]:
    """The rows of the table that compares speed and memory."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| instead of"))
    return [line for line in lines[start : start + 6] if line.startswith("|")]


def test_the_table_of_the_home_page_is_that_of_the_readme() -> None:
    assert len(rows(HOME)) == 6
    assert rows(HOME) == rows(README)


def test_the_sample_of_the_home_page_is_that_of_the_readme() -> None:
    shown = re.findall(r"^```text\n(.*?)^```$", HOME.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    readme = README.read_text(encoding="utf-8")
    assert shown
    assert all(line in readme for block in shown for line in block.splitlines())


@pytest.mark.compile
def test_every_file_of_a_run_folder_is_described(tmp_path: Path, command_environment: Mapping[str, str]) -> None:
    words = ("fit", "digits", "train.epochs=1", "--out", str(tmp_path / "run"), "--quiet")
    subprocess.run([sys.executable, "-m", "edgetrain", *words], env=command_environment, check=True, cwd=tmp_path)
    page = (ROOT / "docs" / "artifact.md").read_text(encoding="utf-8")
    described = page[page.index("## The run folder") : page.index("## Checkpoints")]
    readme = README.read_text(encoding="utf-8")
    listed = readme[readme.index("## What a run leaves behind") : readme.index("## How it works")]
    names = [path.name for path in (tmp_path / "run").iterdir()]
    assert not [name for name in names if f"`{name}" not in described]
    assert not [name for name in names if name not in listed]
