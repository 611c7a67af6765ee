"""Claims about contribution analysis on an engine: a linear model whose gradient is a formula."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from edgetrain.errors import DivergedError
from edgetrain.graph.optimizers import ACCUMULATED as GRAPHS_PREFIX
from edgetrain.run.contribution_scores import (
    ACCUMULATED,
    ScoreRequest,
    scores_from_gradients,
)
from edgetrain.run.engines.engine import Array

BATCH, FEATURES, BATCHES = 8, 3, 4
REQUEST = ScoreRequest(inputs=("x",), names=("w", "b"), batches=BATCHES)


class Linear:
    """y = x·w + b with the mean squared error; `step` adds its share of the gradient to the accumulators."""

    def __init__(self) -> None:
        self._tensors: dict[str, Array] = {
            "x": np.zeros((BATCH, FEATURES)),
            "w": np.array([1.0, -2.0, 0.5]),
            "b": np.array([0.25]),
            f"{ACCUMULATED}:w": np.zeros(FEATURES),
            f"{ACCUMULATED}:b": np.zeros(1),
            "train.labels": np.zeros(BATCH),
            "evaluate.y": np.zeros(BATCH),
        }

    def tensor(self, name: str) -> Array:
        return self._tensors[name]

    def call(self, function: str) -> None:
        t = self._tensors
        t["evaluate.y"][...] = t["x"] @ t["w"] + t["b"]
        if function == "step":
            slope = 2 * (t["evaluate.y"] - t["train.labels"]) / BATCH / BATCHES
            t[f"{ACCUMULATED}:w"] += slope @ t["x"]
            t[f"{ACCUMULATED}:b"] += slope.sum()

    def release(self) -> None:
        """There are no copies."""

    @property
    def saved(self) -> memoryview:
        return memoryview(b"")

    def measured_peak_bytes(self) -> int:
        return 0

    def close(self) -> None: ...


class Batches:
    """Random batches, the same after every `seek`."""

    steps_per_epoch = BATCHES

    def __init__(self, *, scale: float = 1.0) -> None:
        self._scale = scale

    def seek(self, position: tuple[int, int]) -> None:
        self._rng = np.random.default_rng(position)

    def fill(self, inputs: Mapping[str, Array], labels: Array) -> None:
        inputs["x"][...] = self._rng.standard_normal((BATCH, FEATURES)) * self._scale
        labels[...] = self._rng.standard_normal(BATCH)

    def evaluation(self, split: str, inputs: Mapping[str, Array], labels: Array) -> Iterator[int]:
        raise AssertionError("scores are taken on training batches")


def expected_scores() -> dict[str, float]:
    engine, source = Linear(), Batches()
    source.seek((0, 0))
    gradients = []
    for _ in range(BATCHES):
        x, y = {"x": engine.tensor("x")}, engine.tensor("train.labels")
        source.fill(x, y)
        apart = 2 * (x["x"] @ engine.tensor("w") + engine.tensor("b") - y)
        gradients.append((x["x"].T @ apart / BATCH, apart.mean()))
    return {
        "w": float(np.square(np.mean([g for g, _ in gradients], axis=0)).sum()),
        "b": float(np.mean([g for _, g in gradients]) ** 2),
    }


def test_gradients_of_all_batches_count_together() -> None:
    found = scores_from_gradients(Linear(), Batches(), REQUEST)
    assert found.tensors == {n: pytest.approx(value) for n, value in expected_scores().items()}
    assert found.rows == {}


def test_outputs_of_a_weight_are_scored_one_by_one_where_its_axis_is_known() -> None:
    found = scores_from_gradients(Linear(), Batches(), dataclasses.replace(REQUEST, output_axes={"w": 0}))
    assert len(found.rows["w"]) == FEATURES
    assert sum(found.rows["w"]) == pytest.approx(found.tensors["w"])


def test_data_that_overflows_is_reported_not_ranked() -> None:
    with pytest.raises(DivergedError, match="no number"):
        scores_from_gradients(Linear(), Batches(scale=float("nan")), REQUEST)


def test_accumulators_have_the_graphs_name() -> None:
    assert ACCUMULATED == GRAPHS_PREFIX
