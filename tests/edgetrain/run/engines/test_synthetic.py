"""Made-up batches are what each loss reads."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.label_rows import padded_rows
from edgetrain.dataset.samples import Part
from edgetrain.graph.ir import LABELS, Role, Tensor, TrainGraph
from edgetrain.recipes import LOSSES
from edgetrain.run.engines.engine import Array
from edgetrain.run.engines.synthetic import fill_synthetic, scatter_labels
from tests.edgetrain.run import clipped_network as clipped
from tests.edgetrain.run.clipped_network import clipped_network
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


@pytest.mark.parametrize(("limits", "expected"), [({}, {0, 1}), ({"ids": 4}, {1, 2, 3})])
def test_whole_numbers_stay_below_what_is_known_of_their_input(limits: dict[str, int], expected: set[int]) -> None:
    ids = Tensor(name="ids", shape=(50,), dtype="int64", role=Role.INPUT)
    labels = Tensor(name=LABELS, shape=(4, 3), dtype="float32", role=Role.INPUT)
    graph = TrainGraph(name="ids", tensors={"ids": ids, LABELS: labels}, functions={})
    engine = NumpyEngine(graph, lambda _arrays: (0.0, {}), {"w": np.zeros(1)})
    fill_synthetic(engine, graph, loss="mse", seed=0, limits=limits)
    assert set(engine.tensor("ids").tolist()) == expected


def test_labels_are_scattered_round_the_output_as_far_as_it_spreads() -> None:
    engine = clipped_network()
    fill_synthetic(engine, clipped.GRAPH, loss="mse", seed=0)
    scatter_labels(engine, clipped.GRAPH, seed=0)
    output = engine.tensor("evaluate.y")
    assert np.std(engine.tensor(LABELS) - output) == pytest.approx(np.std(output), rel=0.1)


def test_labels_stay_where_the_output_is_no_number() -> None:
    engine = clipped_network()
    fill_synthetic(engine, clipped.GRAPH, loss="mse", seed=0)
    before = engine.tensor(LABELS).copy()
    engine.tensor("w0")[...] = np.nan
    scatter_labels(engine, clipped.GRAPH, seed=0)
    assert np.array_equal(engine.tensor(LABELS), before)
