"""Claims about labels that cannot be what the loss takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.samples import Dataset, Part
from edgetrain.errors import DataError
from edgetrain.run.loop.labels import check_label_kind


def dataset(labels: Any) -> Dataset:
    return Dataset(name="d", train=Part(features=np.zeros((len(labels), 1)), labels=np.asarray(labels)))


@pytest.mark.parametrize(
    ("labels", "example"),
    [([0, 250_000, 199_000], "250000"), (np.array([1.0, 2.5], np.float32), "2.5"), ([1, 1000], "1000")],
)
def test_values_are_no_classes_and_the_hint_says_what_they_need(labels: Any, example: str) -> None:
    with pytest.raises(DataError, match=f"look like values, such as {example}") as caught:
        check_label_kind(dataset(labels), "cross-entropy")
    assert "train.loss=mse metric=mse" in caught.value.fix
    check_label_kind(dataset(labels), "mse")


@pytest.mark.parametrize("labels", [[0, 1], np.array([0.0, 2.0]), [999, 0], list(range(2000))])
def test_whole_numbers_are_classes_however_they_are_stored(labels: Any) -> None:
    check_label_kind(dataset(labels), "cross-entropy")
