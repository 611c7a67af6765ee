"""What a notebook shows: progress, a short table, and errors of a few lines. A real kernel executes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.edgetrain.cli.screen import lines_on_screen

CELLS = (
    "import edgetrain",
    "run = edgetrain.fit('digits', train_epochs=2, data_limit=128, budget='1MB')",
    "run",
    "edgetrain.plan('digits', budget='1MB')",
    "print(run, run.report)",
    "edgetrain.fit('digits', train_epochs=1, data_limit=128, progress=False); print('silent')",
    "edgetrain.fit('dgits')",
)


@pytest.fixture(scope="module")
def cells(
    tmp_path_factory: pytest.TempPathFactory, command_environment: Mapping[str, str]
) -> list[list[Mapping[str, Any]]]:
    """The outputs of each cell."""
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    home = {"IPYTHONDIR": str(folder / "ipython"), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    client = nbclient.NotebookClient(
        notebook, timeout=300, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**command_environment, **home})
    return [list(cell.outputs) for cell in notebook.cells]


def text_of(outputs: list[Mapping[str, Any]]) -> str:
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def html_of(outputs: list[Mapping[str, Any]]) -> str:
    (html,) = (output["data"]["text/html"] for output in outputs if output["output_type"] == "execute_result")
    return str(html)


pytestmark = pytest.mark.compile


def test_training_shows_its_progress_without_being_asked(cells: list[list[Mapping[str, Any]]]) -> None:
    assert {output["name"] for output in cells[1]} == {"stdout"}  # standard error has a red ground
    lines = lines_on_screen(text_of(cells[1]))
    assert [line.partition(":")[0] for line in lines if line.startswith("epoch")] == ["epoch 1", "epoch 2"]
    assert any("6/6" in line for line in lines)


def test_a_run_is_a_short_table(cells: list[list[Mapping[str, Any]]]) -> None:
    html = html_of(cells[2])
    assert html.startswith("<table>")
    rows = re.findall(r"<tr>", html)
    assert 8 <= len(rows) <= 16
    assert "Run in runs/digits" in html
    assert "test accuracy" in html
    (output,) = cells[2]
    assert len(output["data"]["text/plain"]) < 200


def test_a_plan_is_a_short_table(cells: list[list[Mapping[str, Any]]]) -> None:
    html = html_of(cells[3])
    assert "fits: peak " in html
    assert "activations" in html
    assert len(re.findall(r"<tr>", html)) < 20


def test_a_run_prints_in_one_line(cells: list[list[Mapping[str, Any]]]) -> None:
    (line,) = text_of(cells[4]).splitlines()
    assert line.startswith("<Run in runs/digits: 6 steps, peak ")
    assert len(line) < 300


def test_progress_can_be_turned_off(cells: list[list[Mapping[str, Any]]]) -> None:
    assert text_of(cells[5]) == "silent\n"


def test_an_error_is_what_why_and_fix_without_a_traceback(cells: list[list[Mapping[str, Any]]]) -> None:
    (output,) = (output for output in cells[6] if output["output_type"] == "error")
    assert output["ename"] == "UsageError"
    shown = output["traceback"]
    assert shown[0].startswith("UsageError: there is no recipe `dgits` (did you mean `digits`?)")
    assert len("\n".join(shown).splitlines()) == 3
