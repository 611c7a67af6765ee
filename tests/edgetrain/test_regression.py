"""Claims about predicting values: large ones are learned, and everything that comes out is in their units."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain
from edgetrain.cli import main

SAMPLES, MEAN, STD = 240, 250_000, 80_000
WEIGHTS = np.array([0.6, -0.7, 0.4], np.float32)


@pytest.fixture
def workplace(tmp_path: Path, cache_home: Path, compiler_here: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    onnx.save(linear(np.zeros(3), 0.0), "fresh.onnx")
    x = np.random.default_rng(0).standard_normal((SAMPLES, 3)).round(3)
    price = np.rint((x @ WEIGHTS) * STD + MEAN).astype(int)
    with Path("houses.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["id", "size", "age", "rooms", "Price"])
        for i, (row, value) in enumerate(zip(x, price, strict=True)):
            cells = [str(cell).replace(".", ",") for cell in row]
            writer.writerow([f"house {i}", *(cells if i != 7 else ["", *cells[1:]]), value])
    return tmp_path


def linear(weights: Any, bias: float) -> onnx.ModelProto:
    values = {"w": np.asarray(weights, np.float32).reshape(3, 1), "b": np.full(1, bias, np.float32)}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Add", ["product", "b"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SETTINGS: dict[str, Any] = {
    "data_label": "Price",
    "data_ignore": ["id"],
    "data_missing": "mean",
    "train_loss": "mse",
    "train_learning_rate": 0.05,
    "train_epochs": 8,
    "train_batch": 16,
}


@pytest.mark.compile
def test_a_table_of_prices_with_gaps_is_learned_and_told_in_its_own_units(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = edgetrain.fit("fresh.onnx", "houses.csv", out="run", data_test=0.2, **SETTINGS)
    assert math.sqrt(run.metrics["mse"]) < 0.1 * STD
    assert run.metrics["mse"] > 100  # of scaled values it would be below 1
    assert run.losses[-1] < 1
    assert "metrics are as stored" in run.report.to_text()

    x = np.random.default_rng(1).standard_normal((16, 3)).astype(np.float32)
    wanted = (x @ WEIGHTS) * STD + MEAN
    assert np.abs(run.predict(x)[:, 0] - wanted).max() < 0.2 * STD
    session = onnxruntime.InferenceSession(str(run.model_path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], run.predict(x), rtol=1e-4)

    assert main(["eval", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mse"] == pytest.approx(run.metrics["mse"], rel=1e-5)
    reading = json.loads(Path("run/reading.json").read_text())
    assert reading["columns"] == ["size", "age", "rooms"]
    assert len(reading["fills"]) == 3
    assert reading["target"]["mean"] == pytest.approx(MEAN, rel=0.1)


@pytest.mark.compile
def test_a_run_that_goes_on_keeps_its_scaling_to_the_same_bits(workplace: Path) -> None:
    whole = edgetrain.fit("fresh.onnx", "houses.csv", out="whole", **SETTINGS)
    edgetrain.fit("fresh.onnx", "houses.csv", out="parts", **{**SETTINGS, "train_epochs": 3})
    parts = edgetrain.fit("fresh.onnx", "houses.csv", out="parts", resume=True, **SETTINGS)
    assert parts.report.parameters_sha256 == whole.report.parameters_sha256
    assert parts.metrics == whole.metrics


@pytest.mark.compile
def test_a_model_that_knows_the_units_already_keeps_them(workplace: Path) -> None:
    onnx.save(linear(WEIGHTS * STD, MEAN), "trained.onnx")
    settings = {**SETTINGS, "train_epochs": 1, "train_learning_rate": 1e-9}
    run = edgetrain.fit("trained.onnx", "houses.csv", out="run", **settings)
    assert run.report.target_scaling is None
    assert run.metrics["mse"] < (0.01 * STD) ** 2


@pytest.mark.compile
def test_without_scaling_large_values_diverge_as_they_do_elsewhere(workplace: Path) -> None:
    settings = {**SETTINGS, "data_scale_target": "off", "train_learning_rate": 3.0}
    with pytest.raises(edgetrain.EdgetrainError):
        edgetrain.fit("fresh.onnx", "houses.csv", out="run", **settings)
