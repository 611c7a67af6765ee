from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import Dataset, NamedSamples, Part
from edgetrain.errors import DataError
from edgetrain.graph.ir import LABELS, Role, Tensor, TrainGraph
from edgetrain.model.tensor_names import graph_name
from edgetrain.recipes import DataSection
from edgetrain.run.loop.feed import DatasetFeed, conversion_of


def feed_of(rows: int, *, batch: int) -> DatasetFeed:
    features = np.arange(rows, dtype=np.float32).reshape(rows, 1)
    part = Part(features=features, labels=np.arange(rows))
    dataset = Dataset(name="count", train=part, validation=part)
    return DatasetFeed(dataset, batch=batch, seed=1, conversion=Conversion())


def test_seeking_gives_the_batch_that_an_unbroken_stream_gives() -> None:
    inputs, labels = {"x": np.zeros((2, 1), np.float32)}, np.zeros(2, np.int64)
    unbroken, batches = feed_of(7, batch=2), {}
    assert unbroken.steps_per_epoch == 3
    for epoch in range(3):
        for index in range(3):
            unbroken.fill(inputs, labels)
            batches[epoch, index] = labels.copy()
    for position, expected in batches.items():
        fresh = feed_of(7, batch=2)
        fresh.seek(position)
        fresh.fill(inputs, labels)
        np.testing.assert_array_equal(labels, expected)
        np.testing.assert_array_equal(inputs["x"][:, 0], expected)


def test_an_evaluation_shows_every_row_once_and_leaves_the_stream_where_it_was() -> None:
    inputs, labels = {"x": np.zeros((3, 1), np.float32)}, np.zeros(3, np.int64)
    feed, untouched = feed_of(7, batch=3), feed_of(7, batch=3)
    seen: list[int] = []
    for valid in feed.evaluation("validation", inputs, labels):
        seen += labels[:valid].tolist()
    assert seen == list(range(7))
    feed.fill(inputs, labels)
    after = labels.copy()
    untouched.fill(inputs, labels)
    np.testing.assert_array_equal(after, labels)


def test_several_inputs_are_filled_by_name_and_belong_together() -> None:
    numbers = np.arange(6)
    features = NamedSamples(arrays={"ids": numbers[:, np.newaxis], "value": numbers[:, np.newaxis] * 10.0})
    part = Part(features=features, labels=numbers)
    feed = DatasetFeed(Dataset(name="two", train=part, validation=part), batch=2, seed=0, conversion=Conversion())
    inputs: dict[str, np.ndarray[Any, Any]] = {"value": np.zeros((2, 1), np.float32), "ids": np.zeros((2, 1), np.int64)}
    labels = np.zeros(2, np.int64)
    seen: list[int] = []
    for _ in range(3):
        feed.fill(inputs, labels)
        assert np.array_equal(inputs["ids"][:, 0], labels)
        assert np.array_equal(inputs["value"][:, 0], labels * 10)
        seen += labels.tolist()
    assert sorted(seen) == list(range(6))
    for valid in feed.evaluation("validation", inputs, labels):
        assert valid == 2
        assert np.array_equal(inputs["value"][:, 0], labels * 10)


def test_one_array_for_a_model_with_two_inputs_is_refused_by_name() -> None:
    two = {name: np.zeros((2, 1), np.float32) for name in ("left", "right")}
    with pytest.raises(DataError, match="left, right"):
        feed_of(4, batch=2).fill(two, np.zeros(2, np.int64))


def test_bounds_are_by_the_names_of_the_file() -> None:
    """Inside, an input may have another name than the file gives it: one that a graph uses itself gets a prefix."""
    names = ("ids", "train.ids")
    inputs = {
        graph_name(name): Tensor(name=graph_name(name), shape=(2,), dtype="int64", role=Role.INPUT, bounds=(-6, 5))
        for name in names
    }
    labels = Tensor(name=LABELS, shape=(2,), dtype="int64", role=Role.INPUT, bounds=(0, 1))
    graph = TrainGraph(name="names", tensors={**inputs, LABELS: labels}, functions={})
    conversion = conversion_of(DataSection(source="bundled:digits"), graph)
    assert conversion.bounds == dict.fromkeys(names, (-6, 5))
    assert conversion.label_bounds == (0, 1)
