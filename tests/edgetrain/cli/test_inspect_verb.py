from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import edgetrain
from benchmarks.models.merged import merged_by_identity, untrained_batch_norm_cnn
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
    "class_names": ["cat", "ant", "bee"],
    "warnings": ["two became four"],
}


def test_the_screen_reads_as_reviewed() -> None:
    assert to_text(FOUND, names=True) == (
        "model       tiny, opset 17\n"
        "input       x float32 [4, 6]\n"
        "output      y float32 [4, 3]\n"
        "classes     cat, ant, bee\n"
        "ops         Gemm 2, Tanh 1\n"
        "parameters  21 in 2 tensors, 84B\n"
        "trained     18 in 1 tensors, 72B\n"
        "gradients   MISSING\n"
        "            node `a` (Mod)\n"
        "            node `b` (Det)\n"
        "warning     two became four\n"
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


@pytest.mark.compile
def test_what_an_exporter_merged_is_told_and_a_key_ties_it(command: Command, tmp_path: Path) -> None:
    onnx.save(merged_by_identity(untrained_batch_norm_cnn()), str(tmp_path / "merged.onnx"))
    found = json.loads(command("inspect", "merged.onnx", "--json", cwd=tmp_path).stdout)
    assert "`norm0.scale`, `norm0.bias` became 8 tensors" in found["warnings"][0]
    assert sum(p["trained"] for p in found["parameters"]) == 8
    assert [p["name"] for p in found["parameters"] if p["running_statistic"]] == [
        f"norm{i}.{name}" for i in range(2) for name in ("mean", "variance")
    ]
    tied = json.loads(command("inspect", "merged.onnx", 'model.tie=["norm*"]', "--json", cwd=tmp_path).stdout)
    assert sum(p["trained"] for p in tied["parameters"]) == 6
    refused = command("inspect", "merged.onnx", 'model.separate=["conv9"]', cwd=tmp_path)
    assert refused.returncode == 2
    assert "no shared tensor is called model.separate = `conv9`" in refused.stderr


@pytest.mark.compile
def test_python_warns_of_what_an_exporter_merged(
    tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    with pytest.warns(UserWarning, match="the exporter stored equal parameters once"):
        edgetrain.plan(merged_by_identity(untrained_batch_norm_cnn()), train_batch=4)
