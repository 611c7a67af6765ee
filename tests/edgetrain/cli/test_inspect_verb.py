from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgetrain.cli.inspect import to_text
from tests.edgetrain.cli.conftest import Command

FOUND = {
    "name": "tiny",
    "opset": 17,
    "inputs": [{"name": "x", "shape": [4, 6], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [4, 3], "dtype": "float32"}],
    "ops": {"Gemm": 2, "Tanh": 1},
    "parameters": [
        {"name": "w", "shape": [6, 3], "bytes": 72, "trained": True, "running_statistic": False},
        {"name": "mean", "shape": [3], "bytes": 12, "trained": False, "running_statistic": True},
    ],
    "missing_gradients": ["node `a` (Mod)", "node `b` (Det)"],
    "rewrites": ["Clip became min and max"],
}


def test_the_screen_reads_as_reviewed() -> None:
    assert to_text(FOUND, names=True) == (
        "model       tiny, opset 17\n"
        "input       x float32 [4, 6]\n"
        "output      y float32 [4, 3]\n"
        "ops         Gemm 2, Tanh 1\n"
        "parameters  21 in 2 tensors, 84B\n"
        "trained     18 in 1 tensors, 72B\n"
        "gradients   MISSING\n"
        "            node `a` (Mod)\n"
        "            node `b` (Det)\n"
        "rewrite     Clip became min and max\n"
        "\n"
        "w     [6, 3] 72B trained\n"
        "mean  [3] 12B measured\n"
    )


@pytest.mark.compile
def test_inspect_counts_what_an_update_mode_trains(command: Command, tmp_path: Path) -> None:
    done = command("inspect", "digits", "update.mode=head", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [p["name"] for p in found["parameters"] if p["trained"]] == ["head.weight", "head.bias"]
    assert found["missing_gradients"] == []
    assert found["ops"]["Conv"] == 2
