"""Ids and labels that a program would look up where nothing is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.batches import BatchStream, evaluation_batches
from edgetrain.dataset.bounds import check_one, check_rows, first_outside, within
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import NamedSamples, Part
from edgetrain.errors import DataError
from edgetrain.value_bounds import PartBounds, Region

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


def column(lowest: float, highest: float, *, start: int = 0, count: int = 1) -> Region:
    return Region(lowest=lowest, highest=highest, start=start, length=1, step=2, count=count)


COLUMNS = PartBounds(regions=(column(-6, 5.5, count=2), column(0, 1, start=3)))


@pytest.mark.parametrize("kind", [np.float32, np.int64])
@given(data=st.data())
def test_the_first_element_of_a_region_that_is_outside_is_found(kind: Any, data: st.DataObject) -> None:
    """Of each sample of 2 × 2, against the definition of the regions, element by element."""
    batch = np.array(data.draw(st.lists(st.integers(-8, 8), min_size=12, max_size=12)), kind).reshape(3, 2, 2)
    limits = {0: (-6, 5.5), 2: (-6, 5.5), 3: (0, 1)}
    wrong = [
        np.unravel_index(i, batch.shape)
        for i, value in enumerate(batch.reshape(-1))
        if i % 4 in limits and not limits[i % 4][0] <= value <= limits[i % 4][1]
    ]
    assert first_outside(batch, COLUMNS) == (wrong[0] if wrong else None)
    near = within(batch, COLUMNS)
    assert first_outside(near, COLUMNS) is None
    assert np.array_equal(near, batch) == (not wrong)
    assert np.array_equal(near.reshape(-1, 4)[:, 1], batch.reshape(-1, 4)[:, 1])


@pytest.mark.parametrize(("value", "words"), [(np.nan, "nan"), (5.75, "5.75"), (-7, "-7"), (np.inf, "inf")])
def test_a_column_that_is_outside_is_named_with_its_sample(value: float, words: str) -> None:
    batch = np.zeros((2, 4), np.float32)
    batch[1, 2] = value
    features = np.zeros((3, 4), np.float32)
    part = Part(features=features, labels=np.zeros(3, np.int64))
    match = rf"^sample 2: `x` holds {words} at \[2\], outside -6 to 5\.5"
    with pytest.raises(DataError, match=match) as caught:
        check_rows(part, np.array([0, 2]), "`x`", batch, COLUMNS)
    assert caught.value.exit_code == 5
    with pytest.raises(DataError, match=rf"^the sample: `x` holds {words} at \[2\]"):
        check_one({"x": batch[1]}, {"x": COLUMNS})


def test_a_sample_without_axes_has_one_element() -> None:
    bounds = PartBounds(regions=(column(0, 1),))
    assert first_outside(np.array([0.5, 2], np.float32), bounds) == (1,)
    with pytest.raises(DataError, match=r"the sample: `x` holds 2, outside 0 to 1"):
        check_one({"x": np.array(2, np.float32)}, {"x": bounds})
