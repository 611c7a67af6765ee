"""Claims about the order of classes."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.class_order import in_class_order
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.errors import DataError


def dataset(names: tuple[str, ...]) -> Dataset:
    labels = np.array([0, 1, 1, 0])
    part = Part(features=np.zeros((4, 2), np.float32), labels=labels)
    return Dataset(name="photos", train=part, test=part, reading=Reading(class_names=names))


def test_every_part_is_numbered_as_the_model_numbers_its_classes() -> None:
    found = in_class_order(dataset(("cat", "dog")), ("fox", "dog", "cat"))
    assert found.class_names == ("fox", "dog", "cat")
    assert found.train.labels.tolist() == [2, 1, 1, 2]
    assert found.test is not None
    assert found.test.labels.tolist() == [2, 1, 1, 2]
    assert found.validation is None


@pytest.mark.parametrize(("names", "known"), [((), ("a", "b")), (("a", "b"), ())])
def test_without_names_on_one_side_nothing_changes(names: tuple[str, ...], known: tuple[str, ...]) -> None:
    given = dataset(names)
    assert in_class_order(given, known) is given


def test_a_class_that_the_model_does_not_know_is_named() -> None:
    with pytest.raises(DataError, match=r"photos has the class `dogs` \(did you mean `dog`\?\)"):
        in_class_order(dataset(("cat", "dogs")), ("cat", "dog"))
