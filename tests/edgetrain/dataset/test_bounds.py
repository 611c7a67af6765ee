"""Ids and labels that a program would look up where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.batches import BatchStream, evaluation_batches
from edgetrain.dataset.bounds import check_one, first_outside
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import NamedSamples, Part
from edgetrain.errors import DataError

WITHIN = Conversion(bounds={"ids": (-6, 5)}, label_bounds=(0, 2))


def part_of(ids: list[list[int]], labels: list[int] | None = None) -> Part:
    features = NamedSamples(arrays={"ids": np.array(ids, np.int64)})
    return Part(features=features, labels=np.array(labels or [0] * len(ids)))


def read(part: Part, conversion: Conversion = WITHIN, *, batch: int = 2) -> None:
    inputs = {"ids": np.zeros((batch, 2), np.int64)}
    list(evaluation_batches(part, inputs, np.zeros(batch, np.int64), conversion))


@given(values=st.lists(st.integers(-9, 9)), pair=st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
def test_the_first_value_outside_is_found(values: list[int], pair: tuple[int, int]) -> None:
    wrong = [i for i, value in enumerate(values) if not pair[0] <= value <= pair[1]]
    assert first_outside(np.array(values, np.int64), pair) == ((wrong[0],) if wrong else None)


def test_bounds_themselves_are_inside() -> None:
    read(part_of([[-6, 5], [0, 1]], [2, 0]))


@pytest.mark.parametrize("value", [6, -7, 10**9])
def test_an_id_outside_of_its_table_is_refused_with_its_sample(value: int) -> None:
    with pytest.raises(DataError, match=rf"^sample 2: `ids` holds {value}, outside -6 to 5") as caught:
        read(part_of([[0, 0], [1, 1], [2, value]]))
    assert caught.value.exit_code == 5


def test_a_label_outside_of_the_classes_is_refused_with_its_sample() -> None:
    with pytest.raises(DataError, match=r"^sample 1: its label holds 3, outside 0 to 2"):
        read(part_of([[0, 0], [1, 1]], [0, 3]))


def test_a_sample_of_a_part_that_was_drawn_is_named_by_its_row_in_the_data_too() -> None:
    drawn = part_of([[0, 0], [1, 1], [2, 7]]).take(np.array([2, 0, 1])).take(np.array([1, 0]))
    with pytest.raises(DataError, match=r"^sample 1 \(row 2 of the data\): `ids` holds 7"):
        read(drawn)


def test_training_batches_are_looked_at_too() -> None:
    stream = BatchStream(part_of([[9, 0]]), batch=1, seed=0, conversion=WITHIN)
    with pytest.raises(DataError, match=r"^sample 0: `ids` holds 9"):
        stream.fill({"ids": np.zeros((1, 2), np.int64)}, np.zeros(1, np.int64))


def test_a_single_sample_is_looked_at_as_the_model_takes_it() -> None:
    check_one({"ids": np.array([5, -6])}, WITHIN.bounds)
    with pytest.raises(DataError, match="`ids` holds 6"):
        check_one({"ids": np.array([5, 6])}, WITHIN.bounds)


def test_values_that_are_no_whole_numbers_have_no_bounds() -> None:
    assert first_outside(np.array([7.5]), (0, 2)) is None
