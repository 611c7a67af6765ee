"""Claims about batches: their order, their resumption and their labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.dataset.batches import BatchStream, Position, check_labels, evaluation_batches
from edgetrain.dataset.samples import Part
from edgetrain.errors import DataError

Batch = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def part_of(samples: int) -> Part:
    """Sample i is [i, i] with label i, so that a batch tells which rows it holds."""
    numbers = np.arange(samples)
    return Part(features=np.stack([numbers, numbers], axis=1).astype(np.float32), labels=numbers)


def read(stream: BatchStream, batch: int, count: int) -> list[Batch]:
    batches = []
    for _ in range(count):
        x, y = np.empty((batch, 2), np.float32), np.empty(batch, np.int64)
        stream.fill(x, y)
        batches.append((x, y))
    return batches


@settings(deadline=None)
@given(samples=st.integers(1, 40), batch=st.integers(1, 12), seed=st.integers(0, 5))
def test_an_epoch_visits_each_sample_at_most_once_and_leaves_out_less_than_a_batch(
    samples: int, batch: int, seed: int
) -> None:
    batch = min(batch, samples)
    stream = BatchStream(part_of(samples), batch=batch, seed=seed)
    rows = np.concatenate([y for _, y in read(stream, batch, stream.batches_per_epoch)])
    assert len(set(rows.tolist())) == len(rows)
    assert samples - len(rows) < batch
    assert stream.position == Position(epoch=1)


@settings(deadline=None)
@given(stop=st.integers(0, 12), seed=st.integers(0, 3))
def test_a_stream_that_resumes_goes_on_as_if_it_never_stopped(stop: int, seed: int) -> None:
    whole = read(BatchStream(part_of(11), batch=3, seed=seed), 3, 14)
    first = BatchStream(part_of(11), batch=3, seed=seed)
    read(first, 3, stop)
    resumed = BatchStream(part_of(11), batch=3, seed=seed, position=first.position)
    for (x, y), (x_whole, y_whole) in zip(read(resumed, 3, 14 - stop), whole[stop:], strict=True):
        assert x.tobytes() == x_whole.tobytes()
        assert y.tobytes() == y_whole.tobytes()


def test_the_order_changes_with_the_epoch_and_with_the_seed() -> None:
    def labels(seed: int, epoch: int) -> list[int]:
        stream = BatchStream(part_of(50), batch=50, seed=seed, position=Position(epoch=epoch))
        return read(stream, 50, 1)[0][1].tolist()  # type: ignore[no-any-return]

    orders = [labels(0, 0), labels(0, 1), labels(1, 0)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_the_order_is_the_documented_generator() -> None:
    (_, y), *_ = read(BatchStream(part_of(20), batch=20, seed=7, position=Position(epoch=3)), 20, 1)
    assert np.array_equal(y, np.random.Generator(np.random.PCG64([7, 3])).permutation(20))


def test_features_and_labels_of_a_batch_belong_together() -> None:
    ((x, y),) = read(BatchStream(part_of(9), batch=4, seed=0), 4, 1)
    assert np.array_equal(x[:, 0], y)


def test_fewer_samples_than_a_batch_is_a_data_error_with_both_counts() -> None:
    with pytest.raises(DataError, match="3 training samples, fewer than one batch of 4") as caught:
        BatchStream(part_of(3), batch=4, seed=0)
    assert "`train.batch=3` or less" in caught.value.fix


@pytest.mark.parametrize("position", [Position(index=3), Position(index=-1), Position(epoch=-1)])
def test_a_position_outside_the_epoch_is_refused(position: Position) -> None:
    with pytest.raises(DataError, match="no batch"):
        BatchStream(part_of(9), batch=3, seed=0, position=position)


@settings(deadline=None)
@given(samples=st.integers(1, 20), batch=st.integers(1, 8))
def test_evaluation_shows_every_sample_once_and_fills_the_rest(samples: int, batch: int) -> None:
    x, y = np.empty((batch, 2), np.float32), np.empty(batch, np.int64)
    seen: list[int] = []
    for valid in evaluation_batches(part_of(samples), x, y):
        seen += y[:valid].tolist()
        assert set(y[valid:].tolist()) <= {samples - 1}
        assert np.array_equal(x[:, 0], y)
    assert seen == list(range(samples))


def test_classes_become_one_hot_rows_where_the_output_has_columns() -> None:
    x, y = np.empty((2, 2), np.float32), np.empty((2, 4), np.float32)
    assert list(evaluation_batches(part_of(2), x, y)) == [2]
    assert np.array_equal(y, np.eye(4)[:2])


def test_values_keep_their_columns() -> None:
    values = np.array([[0.5, 1.5], [2.5, 3.5]], np.float32)
    y = np.empty((2, 2), np.float32)
    list(evaluation_batches(Part(features=values, labels=values), np.empty((2, 2), np.float32), y))
    assert np.array_equal(y, values)


def test_a_broken_sample_is_named_by_its_number() -> None:
    features = np.array([[0.0, 1.0], [np.nan, 0.0]])
    part = Part(features=features, labels=np.array([0, 1]))
    with pytest.raises(DataError, match=r"sample 1 \(counted from 0\): .*NaN"):
        list(evaluation_batches(part, np.empty((2, 2), np.float32), np.empty(2, np.int64)))


def test_a_broken_sample_of_a_part_is_named_by_its_number_in_the_source() -> None:
    features = np.zeros((20, 2))
    features[13] = np.nan
    part = Part(features=features, labels=np.zeros(20, np.int64)).take(np.arange(19, -1, -1)).take(np.arange(4, 9))
    with pytest.raises(DataError, match=r"^sample 13 \(counted from 0\): .*NaN"):
        list(evaluation_batches(part, np.empty((2, 2), np.float32), np.empty(2, np.int64)))


def test_a_broken_sample_that_is_a_file_is_named_by_its_path() -> None:
    clips = Recordings(paths=(Path("dog/1.wav"), Path("dog/2.wav"), Path("cat/3.wav")))
    part = Part(features=clips, labels=np.zeros(3, np.int64)).take(np.array([2, 1]))
    with pytest.raises(DataError, match=r"^`dog/2.wav`: .*NaN"):
        list(evaluation_batches(part, np.empty((2, 2), np.float32), np.empty(2, np.int64)))


@dataclass(frozen=True)
class Recordings:
    """Samples that are a file each; the second of them is broken."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any, /) -> Any:
        return np.full(2, np.nan if index == 1 else 0.0)


def test_a_label_outside_the_models_classes_is_named() -> None:
    check_labels(part_of(3), 3, name="d")
    with pytest.raises(DataError, match="label 3 at sample 3, outside 0 to 2") as caught:
        check_labels(part_of(5), 3, name="d")
    assert "model.classes=5" in caught.value.fix
    with pytest.raises(DataError) as caught:
        check_labels(Part(features=np.zeros((2, 1)), labels=np.array([250_000, 3])), 3, name="d")
    assert "train.loss=mse metric=mse" in caught.value.fix
    with pytest.raises(DataError, match="float32"):
        check_labels(Part(features=np.zeros((1, 1)), labels=np.zeros(1, np.float32)), 3, name="d")
