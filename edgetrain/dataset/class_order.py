"""Classes numbered as a model numbers them, whatever order the source lists them in."""

from __future__ import annotations

import dataclasses

import numpy as np

from edgetrain.dataset.samples import Array, Dataset, Part
from edgetrain.errors import DataError
from edgetrain.schema import close_to


def class_numbers(found: tuple[str, ...], known: tuple[str, ...], *, where: str) -> Array:
    """For each class of the source its number in `known`. Raises `DataError` for a class that is not among them."""
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise DataError(
            f"{where} has the class `{unknown[0]}`{close_to(unknown[0], known)}, which the model was not trained on",
            why=f"its classes are {', '.join(known)}",
            fix="rename that class, or leave it out",
        )
    return np.array([known.index(name) for name in found])


def renumbered(part: Part, numbers: Array) -> Part:
    return Part(features=part.features, labels=numbers[part.labels])


def in_class_order(dataset: Dataset, known: tuple[str, ...]) -> Dataset:
    """The dataset with its classes numbered as in `known`; the same where either has no names.

    Raises `DataError` for a class that is not among them.
    """
    names = dataset.class_names
    if not names or not known or names == known:
        return dataset
    numbers = class_numbers(names, known, where=dataset.name)
    return dataclasses.replace(
        dataset,
        train=renumbered(dataset.train, numbers),
        validation=renumbered(dataset.validation, numbers) if dataset.validation is not None else None,
        test=renumbered(dataset.test, numbers) if dataset.test is not None else None,
        reading=dataclasses.replace(dataset.reading, class_names=known),
    )
