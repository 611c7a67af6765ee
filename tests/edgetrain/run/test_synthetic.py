"""Made-up batches are what each loss reads."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.label_rows import padded_rows
from edgetrain.dataset.samples import Part
from edgetrain.graph.ir import Role, Tensor, TrainGraph
from edgetrain.recipes import LOSSES
from edgetrain.run.engine import LABELS, Array
from edgetrain.run.synthetic import fill_synthetic
from tests.edgetrain.run.numpy_engine import NumpyEngine
from tests.edgetrain.run.softmax_regression import CLASSES, GRAPH, softmax_regression


def test_labels_are_classes_of_the_model() -> None:
    engine = softmax_regression()
    fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=0)
    assert set(engine.tensor(LABELS).tolist()) <= set(range(CLASSES))
    assert engine.tensor("x").std() > 0.5


def graph_of(labels: Tensor, output: tuple[int, ...]) -> TrainGraph:
    tensors = (labels, Tensor(name="evaluate.y", shape=output, dtype="float32", role=Role.OUTPUT))
    return TrainGraph(name="labels", tensors={t.name: t for t in tensors}, functions={})


def labels_of(loss: str, labels: Tensor, output: tuple[int, ...], seed: int = 0) -> Array:
    graph = graph_of(labels, output)
    engine = NumpyEngine(graph, lambda _arrays: (0.0, {}), {"w": np.zeros(1)})
    fill_synthetic(engine, graph, loss=loss, seed=seed)
    return engine.tensor(LABELS)


def whole_numbers(*shape: int) -> Tensor:
    return Tensor(name=LABELS, shape=shape, dtype="int64", role=Role.INPUT)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_has_labels(loss: str) -> None:
    if loss == "ctc":
        assert labels_of(loss, whole_numbers(4, 6), (4, 12, 5)).shape == (4, 6)
    else:
        numbers = Tensor(name=LABELS, shape=(4, 3), dtype="float32", role=Role.INPUT)
        is_by_row = loss in ("cross-entropy", "focal", "nt-xent")
        found = labels_of(loss, whole_numbers(4) if is_by_row else numbers, (4, 3))
        assert np.isfinite(found).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("time", "width"), [(12, 6), (6, 6), (2, 2), (1, 1)])
def test_rows_for_ctc_can_be_spelt(time: int, width: int, seed: int) -> None:
    labels = labels_of("ctc", whole_numbers(8, width), (8, time, 3), seed)
    part = Part(features=np.zeros((8, 1), np.float32), labels=labels)
    assert padded_rows(part, classes=3, time_steps=time, width=width, name="this").labels.shape == (8, width)
