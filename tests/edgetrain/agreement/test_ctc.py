"""A model that spells: ten compiled steps of the CTC loss against PyTorch, and a whole run from rows of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain
from benchmarks.references.torch_reference import train_in_torch
from benchmarks.references.trained import STEPS, Batch, assert_agrees
from benchmarks.references.workshop import Workshop
from edgetrain.errors import DataError
from edgetrain.graph.options import LossOptions, OptimizerOptions, TrainOptions

pytestmark = pytest.mark.compile

TIME, FEATURES, LETTERS, LONGEST = 12, 5, 4, 4
CLASSES = LETTERS + 1  # and the blank


def speller(*, softmax: bool) -> onnx.ModelProto:
    """A 1-D convolution over time and a dense layer on each step: (batch, features, time) to (batch, time, classes)."""
    rng = np.random.default_rng(21)
    shapes = {"kernel": (16, FEATURES, 3), "shift": (16,), "scores.weight": (16, CLASSES), "scores.bias": (CLASSES,)}
    weights = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}
    last = helper.make_node("Softmax", ["scores"], ["y"], axis=-1) if softmax else None
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["series", "kernel", "shift"], ["conv"], kernel_shape=[3], pads=[1, 1]),
            helper.make_node("Tanh", ["conv"], ["bounded"]),
            helper.make_node("Transpose", ["bounded"], ["by_time"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["by_time", "scores.weight"], ["product"]),
            helper.make_node("Add", ["product", "scores.bias"], ["scores" if softmax else "y"]),
            *([last] if last is not None else []),
        ],
        "speller",
        [helper.make_tensor_value_info("series", TensorProto.FLOAT, ["batch", FEATURES, TIME])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", TIME, CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def spelt(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Series in which feature k of some steps tells letter k, and the letters, no two neighbours equal."""
    series = rng.standard_normal((count, FEATURES, TIME)).astype(np.float32) * 0.3
    labels = np.full((count, LONGEST), -1)
    for row in range(count):
        length = int(rng.integers(1, LONGEST + 1))
        letter = 0
        for place in range(length):
            letter = (letter + int(rng.integers(1, LETTERS))) % LETTERS
            labels[row, place] = letter + 1
            series[row, letter, 3 * place + 1] += 3.0
    return series, labels


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize("softmax", [False, True])
def test_a_model_learns_to_spell_as_in_torch(softmax: bool, workshop: Workshop) -> None:
    """A final softmax is the loss's own."""
    options = TrainOptions(
        batch=4,
        loss="ctc",
        loss_options=LossOptions(label_length=LONGEST),
        optimizer=OptimizerOptions(kind="sgd", momentum=0.9),
    )
    rng = np.random.default_rng(0)
    batches = [Batch(data=series, labels=labels) for series, labels in (spelt(rng, 4) for _ in range(STEPS))]
    found = workshop.train_model(speller(softmax=softmax), batches, options, learning_rate=0.05)
    expected = train_in_torch(speller(softmax=False), batches, options, learning_rate=0.05)
    assert_agrees(found, expected)


def test_a_whole_run_learns_to_spell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build_cache: Any) -> None:
    monkeypatch.chdir(tmp_path)
    series, labels = spelt(np.random.default_rng(1), 240)
    np.savez(tmp_path / "data.npz", x=series, y=labels)
    onnx.save(speller(softmax=False), str(tmp_path / "speller.onnx"))
    report = edgetrain.fit(
        "speller.onnx",
        "data.npz",
        out="run",
        train_loss="ctc",
        train_epochs=8,
        train_batch=8,
        train_optimizer="adam",
        train_learning_rate=0.02,
    ).report
    assert report.test["error-rate"] < 0.1
    assert report.losses[-1] < 0.2 * report.losses[0]


def test_a_row_that_cannot_be_spelt_is_a_data_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    series, labels = spelt(np.random.default_rng(1), 40)
    labels[7, 0] = 0
    onnx.save(speller(softmax=False), str(tmp_path / "speller.onnx"))
    with pytest.raises(DataError, match=r"row of labels at sample \d+ that the model cannot put out") as caught:
        edgetrain.fit("speller.onnx", (series, labels), out="run", train_loss="ctc", train_batch=8)
    assert "0 is the blank" in caught.value.why
