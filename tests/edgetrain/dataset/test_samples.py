"""Claims about datasets and their split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import NamedSamples, Part, from_arrays, from_batches, split
from edgetrain.errors import DataError


def rows_of(part: Part | None) -> list[int]:
    return [] if part is None else [int(part.features[i][0]) for i in range(len(part))]


def part_of(samples: int) -> Part:
    return Part(features=np.arange(samples)[:, np.newaxis], labels=np.arange(samples))


@settings(deadline=None)
@given(
    samples=st.integers(2, 60), limit=st.none() | st.integers(2, 80), validation=st.floats(0, 0.99, exclude_max=False)
)
def test_training_and_validation_share_no_row_and_together_are_the_limit(
    samples: int, limit: int | None, validation: float
) -> None:
    dataset = split(part_of(samples), name="d", limit=limit, validation=validation)
    train, held_out = rows_of(dataset.train), rows_of(dataset.validation)
    assert len(train) >= 1
    assert not set(train) & set(held_out)
    assert len(train) + len(held_out) == min(samples, limit or samples)
    assert (len(held_out) > 0) == (validation > 0)
    assert rows_of(split(part_of(samples), name="d", limit=limit, validation=validation).train) == train


def test_a_limit_draws_from_the_whole_of_a_sorted_source() -> None:
    part = Part(features=np.zeros((100, 1)), labels=np.repeat([0, 1], 50))
    assert 5 < split(part, name="d", limit=30).train.labels.sum() < 25


def test_a_test_part_can_be_limited_and_is_what_is_evaluated() -> None:
    dataset = split(part_of(10), name="d", test=part_of(20), test_limit=7, validation=0.2)
    assert dataset.test is not None
    assert len(set(rows_of(dataset.test))) == 7
    assert dataset.evaluation is dataset.test
    without = split(part_of(10), name="d", validation=0.2)
    assert without.evaluation is without.validation


def test_the_number_of_classes_is_what_all_parts_need() -> None:
    assert split(part_of(3), name="d", test=part_of(5)).classes == 5
    assert split(part_of(3), name="d", reading=Reading(class_names=tuple("abcdef"))).classes == 6
    values = Part(features=np.zeros((2, 1)), labels=np.zeros(2, np.float32))
    assert split(values, name="d").classes is None


def test_no_samples_is_a_data_error() -> None:
    with pytest.raises(DataError, match="no training samples"):
        split(part_of(0), name="d")
    with pytest.raises(DataError, match="no training samples"):
        from_batches(iter(()))


def test_samples_and_labels_must_be_as_many() -> None:
    with pytest.raises(DataError, match="3 samples and 2 labels"):
        from_arrays(np.zeros((3, 1)), [0, 1])


def test_batches_are_joined_in_order() -> None:
    dataset = from_batches((([[2 * i], [2 * i + 1]], [0, 1]) for i in range(3)), validation=0)
    assert rows_of(dataset.train) == [0, 1, 2, 3, 4, 5]
    assert dataset.train.labels.tolist() == [0, 1] * 3


@pytest.mark.parametrize("labels", [["a", "b"], [-1, 0], [0.0, float("nan")]])
def test_labels_that_are_neither_classes_nor_values_are_refused(labels: list[Any]) -> None:
    with pytest.raises(DataError, match="label"):
        from_arrays(np.zeros((2, 1)), labels)


@settings(deadline=None)
@given(
    groups=st.lists(st.integers(0, 6), min_size=3, max_size=60).filter(lambda g: len(set(g)) >= 3),
    test_share=st.floats(0, 0.6),
    validation=st.floats(0, 0.6),
    limit=st.none() | st.integers(3, 60),
)
def test_no_group_is_in_two_parts_and_no_row_is_lost(
    groups: list[int], test_share: float, validation: float, limit: int | None
) -> None:
    dataset = split(
        part_of(len(groups)),
        name="d",
        groups=np.array(groups),
        test_share=test_share,
        validation=validation,
        limit=limit,
    )
    parts = [rows_of(part) for part in (dataset.train, dataset.validation, dataset.test)]
    held = [{groups[row] for row in rows} for rows in parts]
    assert not held[0] & held[1]
    assert not held[0] & held[2]
    assert not held[1] & held[2]
    rows = sorted(row for part in parts for row in part)
    assert len(set(rows)) == len(rows)
    assert parts[0]
    assert bool(parts[2]) == (test_share > 0)
    if limit is None:
        assert rows == list(range(len(groups)))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_test_share_without_groups_is_drawn_from_the_whole_of_a_sorted_source(share: float) -> None:
    part = Part(features=np.arange(200)[:, np.newaxis], labels=np.repeat([0, 1], 100))
    dataset = split(part, name="d", test_share=share, validation=0.1)
    assert dataset.test is not None
    assert dataset.validation is not None
    assert len(dataset.test) == 200 * share
    assert 0.25 < dataset.test.labels.mean() < 0.75
    parts = (rows_of(dataset.train), rows_of(dataset.validation), rows_of(dataset.test))
    assert sorted(row for rows in parts for row in rows) == list(range(200))


def test_a_share_of_groups_comes_as_close_as_whole_groups_allow() -> None:
    groups = np.repeat(np.arange(10), 30)
    dataset = split(part_of(300), name="d", groups=groups, test_share=0.2)
    assert dataset.test is not None
    assert len(dataset.test) == 60


def test_a_test_part_of_the_source_is_not_replaced_by_a_share() -> None:
    dataset = split(part_of(10), name="d", test=part_of(3), test_share=0.5)
    assert rows_of(dataset.test) == [0, 1, 2]
    assert len(dataset.train) == 10


def test_arrays_by_name_are_one_sample_with_the_same_row_of_each() -> None:
    dataset = from_arrays({"a": np.arange(4), "b": np.arange(4) * 2}, [0, 1, 0, 1], validation=0)
    assert dataset.train.features[3] == {"a": 3, "b": 6}
    with pytest.raises(DataError, match="`a` 3, `b` 2"):
        NamedSamples(arrays={"a": np.zeros(3), "b": np.zeros(2)})
