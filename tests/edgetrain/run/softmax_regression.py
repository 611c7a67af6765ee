"""An engine written in NumPy whose gradients can be made wrong on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetrain.graph.ir import Role, Tensor, TrainGraph
from edgetrain.run.engine import LABELS, LEARNING_RATE, LOSS, Array

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


class SoftmaxRegression:
    """Satisfies `Engine`. `faults` change a gradient on its way into the update, by tensor name."""

    def __init__(self, faults: Mapping[str, Any] | None = None) -> None:
        rng = np.random.Generator(np.random.PCG64(3))
        self._faults = faults or {}
        self._memory = np.zeros(sum(t.elements for t in GRAPH.tensors.values() if t.name in TRAINED), np.float32)
        self._arrays: dict[str, Array] = {
            name: np.zeros(t.shape, t.dtype) for name, t in GRAPH.tensors.items() if name not in TRAINED
        }
        self._arrays["w"] = self._memory[: FEATURES * CLASSES].reshape(FEATURES, CLASSES)
        self._arrays["b"] = self._memory[FEATURES * CLASSES :]
        self._arrays["w"][...] = rng.standard_normal((FEATURES, CLASSES)) * 0.3
        self.calls = 0

    def tensor(self, name: str) -> Array:
        return self._arrays[name]

    @property
    def saved(self) -> memoryview:
        return memoryview(self._memory.data).cast("B")

    def call(self, function: str) -> None:
        self.calls += 1
        x, labels = self._arrays["x"], self._arrays[LABELS]
        logits = x @ self._arrays["w"] + self._arrays["b"]
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=1, keepdims=True)
        rows = np.arange(BATCH)
        self._arrays[LOSS][...] = -np.log(probabilities[rows, labels]).mean()
        slope = probabilities.copy()
        slope[rows, labels] -= 1
        for name, gradient in {"w": x.T @ slope / BATCH, "b": slope.sum(axis=0) / BATCH}.items():
            faulty = self._faults.get(name, lambda value: value)(gradient)
            self._arrays[name] -= self._arrays[LEARNING_RATE] * faulty.astype(np.float32)

    def measured_peak_bytes(self) -> int:
        return 0

    def close(self) -> None: ...
