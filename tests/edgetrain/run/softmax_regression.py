"""A smooth model for `NumpyEngine`: one layer and a cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetrain.graph.ir import LABELS, LEARNING_RATE, LOSS, Role, Tensor, TrainGraph
from edgetrain.run.engines.engine import Array
from tests.edgetrain.run.numpy_engine import NumpyEngine

BATCH, FEATURES, CLASSES = 8, 12, 5
TRAINED = ("w", "b")


def _tensors() -> tuple[Tensor, ...]:
    def tensor(name: str, shape: tuple[int, ...], role: Role, dtype: str = "float32") -> Tensor:
        return Tensor(name=name, shape=shape, dtype=dtype, role=role)

    return (
        tensor("w", (FEATURES, CLASSES), Role.PARAMETER),
        tensor("b", (CLASSES,), Role.PARAMETER),
        tensor("x", (BATCH, FEATURES), Role.INPUT),
        tensor(LABELS, (BATCH,), Role.INPUT, "int64"),
        tensor(LEARNING_RATE, (), Role.INPUT),
        tensor(LOSS, (), Role.OUTPUT),
        tensor("evaluate.y", (BATCH, CLASSES), Role.OUTPUT),
    )


GRAPH = TrainGraph(name="softmax", tensors={t.name: t for t in _tensors()}, functions={})


def softmax_regression(faults: Mapping[str, Any] | None = None) -> NumpyEngine:
    rng = np.random.Generator(np.random.PCG64(3))
    parameters = {"w": rng.standard_normal((FEATURES, CLASSES)) * 0.3, "b": np.zeros(CLASSES)}
    return NumpyEngine(GRAPH, _model, parameters, faults)


def _model(arrays: Mapping[str, Array]) -> tuple[float, Mapping[str, Array]]:
    x, labels = arrays["x"], arrays[LABELS]
    logits = x @ arrays["w"] + arrays["b"]
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    rows = np.arange(BATCH)
    slope = probabilities.copy()
    slope[rows, labels] -= 1
    loss = -np.log(probabilities[rows, labels]).mean()
    return loss, {"w": x.T @ slope / BATCH, "b": slope.sum(axis=0) / BATCH}
