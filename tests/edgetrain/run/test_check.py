"""The check, checked: an engine written in NumPy whose gradients can be made wrong on purpose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edgetrain.graph.ir import Role, Tensor, TrainGraph
from edgetrain.run.check import (
    CheckReport,
    Finding,
    Probe,
    fill_synthetic,
    gradient_errors,
    spread,
    take_steps,
)
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


def probe(seed: int = 0) -> Probe:
    return Probe(
        program=cast(Any, SimpleNamespace(graph=GRAPH)),
        loss="cross-entropy",
        trained=TRAINED,
        threads=1,
        page_directory=Path(),
        seed=seed,
    )


def excesses(engine: SoftmaxRegression, seed: int = 0) -> dict[str, float]:
    return {error.tensor: error.excess for error in gradient_errors(engine, probe(seed), TRAINED)}


@pytest.mark.parametrize("seed", range(5))
def test_right_gradients_pass(seed: int) -> None:
    assert all(excess <= 1 for excess in excesses(SoftmaxRegression(), seed).values())


def _one_column_lost(gradient: Array) -> Array:
    lost = gradient.copy()
    lost[..., np.abs(gradient).reshape(-1, CLASSES).sum(axis=0).argmax()] = 0
    return lost


FAULTS = {
    "a tenth too large": lambda g: 1.1 * g,
    "a tenth too small": lambda g: 0.9 * g,
    "of the wrong sign": lambda g: -g,
    "zero": lambda g: 0 * g,
    "one column lost": _one_column_lost,
    "rows in another order": lambda g: g[::-1],
    "not a number": lambda g: g * np.nan,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tensor", TRAINED)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_gradient_is_found_and_blamed_on_its_tensor(fault: str, tensor: str, seed: int) -> None:
    found = excesses(SoftmaxRegression({tensor: FAULTS[fault]}), seed)
    assert not found.pop(tensor) <= 1
    assert all(excess <= 1 for excess in found.values())


def test_probing_leaves_the_parameters_as_they_were() -> None:
    engine = SoftmaxRegression()
    before = bytes(engine.saved)
    assert list(gradient_errors(engine, probe(), TRAINED))
    assert bytes(engine.saved) == before
    assert engine.calls > 1


def test_steps_are_the_same_for_the_same_seed() -> None:
    losses = [take_steps(SoftmaxRegression(), probe(seed)) for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]
    assert losses[0][-1] < losses[0][0]


def test_labels_are_classes_of_the_model() -> None:
    engine = SoftmaxRegression()
    fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=0)
    assert set(engine.tensor(LABELS).tolist()) <= set(range(CLASSES))
    assert engine.tensor("x").std() > 0.5


@pytest.mark.parametrize("count", [1, 2, 3, 32, 100, 161])
def test_the_tensors_asked_are_spread_over_the_model(count: int) -> None:
    names = [f"t{i}" for i in range(count)]
    chosen = spread(names, 32)
    assert len(chosen) == len(set(chosen)) == min(count, 32)
    assert (chosen[0], chosen[-1]) == (names[0], names[-1])
    assert list(chosen) == [name for name in names if name in chosen]


def test_one_failed_question_fails_the_check_and_shows() -> None:
    good = Finding(name="steps", is_ok=True, text="losses 1, 0.5")
    bad = Finding(name="gradients", is_ok=False, text="wrong: `w`")
    report = CheckReport(model="tiny", findings=(good, bad))
    assert not report.is_ok
    assert report.to_text() == (
        "steps      ok      losses 1, 0.5\ngradients  FAILED  wrong: `w`\n\ntiny DOES NOT train right here\n"
    )
    assert json.loads(report.to_json())["is_ok"] is False
    assert CheckReport(model="tiny", findings=(good,)).to_text().endswith("tiny trains here\n")
