"""What a dataset is: samples with labels, in parts, loaded whole or one at a time.

A sample is one array, or several by the names of the model's inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from edgetrain.dataset.hold_out import draw, hold_out
from edgetrain.dataset.reading import Reading
from edgetrain.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]
Sample = Array | Mapping[str, Any]


class Samples(Protocol):
    """Features by index. An array is one; a folder of images that are opened when asked for is another.

    An item is an array, or a mapping from input names to arrays.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSamples:
    """Several arrays of one length, by the names of the model's inputs: item i holds row i of each."""

    arrays: Mapping[str, Samples]

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.arrays.items()}
        if len(set(lengths.values())) != 1:
            raise DataError(
                f"the inputs hold unequal numbers of samples: {', '.join(f'`{n}` {c}' for n, c in lengths.items())}",
                fix="make them the same length",
            )

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, index: Any, /) -> Mapping[str, Any]:
        return {name: values[index] for name, values in self.arrays.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of other samples, in the order of `indices`. Nothing is copied."""

    samples: Samples
    indices: Array

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any, /) -> Any:
        return self.samples[self.indices[index]]


def sample_name(samples: Samples, row: int) -> str:
    """Where a person finds the sample: its file, or its number in the source, whatever part it was drawn into."""
    while isinstance(samples, Rows):
        row, samples = int(samples.indices[row]), samples.samples
    paths = getattr(samples, "paths", None)
    if isinstance(paths, tuple) and len(paths) == len(samples):  # a file each
        return f"`{paths[row]}`"
    return f"sample {row} (counted from 0)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Features and labels of the same length. Integer labels are classes, floating-point labels are values."""

    features: Samples
    labels: Array

    def __post_init__(self) -> None:
        if len(self.features) != len(self.labels):
            raise DataError(
                f"the data has {len(self.features)} samples and {len(self.labels)} labels",
                fix="make the two the same length",
            )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Array) -> Part:
        """The part that holds only these rows, in this order."""
        return Part(features=Rows(samples=self.features, indices=indices), labels=self.labels[indices])


def place_in_source(part: Part, row: int) -> int:
    """The row of the samples that the part was drawn from, where it is some rows of others."""
    samples = part.features
    while isinstance(samples, Rows):
        row = int(samples.indices[row])
        samples = samples.samples
    return row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """`validation` is held out of the source's training part; `test` is a part of its own where the source has one."""

    name: str
    train: Part
    validation: Part | None = None
    test: Part | None = None
    reading: Reading = field(default_factory=Reading)
    notes: tuple[str, ...] = ()  # what a user should know of how it was read

    @property
    def class_names(self) -> tuple[str, ...]:
        """In the order of the model's outputs; empty where the source has none."""
        return self.reading.class_names

    @property
    def evaluation(self) -> Part | None:
        """What the reported metric is computed on: the test part, else the validation part."""
        return self.test if self.test is not None else self.validation

    @property
    def classes(self) -> int | None:
        """The number of classes that the labels need; None where labels are values."""
        parts = [part for part in (self.train, self.validation, self.test) if part is not None and len(part)]
        if not all(np.issubdtype(part.labels.dtype, np.integer) for part in parts):
            return None
        return max([len(self.class_names), *(int(part.labels.max()) + 1 for part in parts)])


def split(
    part: Part,
    *,
    name: str,
    test: Part | None = None,
    validation_part: Part | None = None,
    limit: int | None = None,
    test_limit: int | None = None,
    test_share: float = 0.0,
    validation: float = 0.0,
    reading: Reading | None = None,
    groups: Array | None = None,
    stratify: bool = False,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """A dataset from its source's parts. Which rows are used and held out depends on the numbers given, nothing else.

    Where there is no `test` part, the share `test_share` of `part` becomes one. `limit` rows (of the test part
    `test_limit`) are drawn from the whole part, so that a source sorted by class stays balanced; the share
    `validation` of them (at least one, when it is not 0) is held out, unless the source has a part for it. `groups`
    names the group of each row of `part` (the person, say): no group is in two parts. With `stratify` each class is
    held out by the same share.
    """
    if len(part) == 0:
        raise DataError(f"{name} holds no training samples", fix="check `data.source`")
    classes = part.labels if stratify and is_class_labels(part.labels) else None
    if test is None and test_share > 0:
        rows, test_rows = hold_out(draw(len(part)), test_share, groups=groups, classes=classes)
        test = part.take(test_rows)
    else:
        rows = np.arange(len(part))
    order = rows[draw(len(rows), limit)]
    if test is not None and test_limit is not None and test_limit < len(test):
        test = test.take(np.sort(draw(len(test), test_limit)))
    if validation_part is None and validation > 0:
        order, held_out = hold_out(order, validation, groups=groups, classes=classes)
        validation_part = part.take(held_out) if len(held_out) else None
    else:
        order = np.sort(order)
    return Dataset(
        name=name,
        train=part.take(order),
        validation=validation_part,
        test=test if test is not None and len(test) else None,
        reading=reading or Reading(),
        notes=notes,
    )


def is_class_labels(labels: Array) -> bool:
    """Whether the labels are classes, one for each sample."""
    return labels.ndim == 1 and bool(np.issubdtype(labels.dtype, np.integer))


def from_arrays(
    features: Samples | Mapping[str, Samples],
    labels: Any,
    *,
    name: str = "the arrays",
    test: tuple[Samples | Mapping[str, Samples], Any] | None = None,
    limit: int | None = None,
    validation: float = 0.1,
    stratify: bool = True,
) -> Dataset:
    """A dataset over arrays, or over anything with a length and an index that gives one sample.

    For a model with several inputs, `features` maps the name of each to its array.
    """
    part = Part(features=_named(features), labels=normal_labels(labels, name))
    test_part = None if test is None else Part(features=_named(test[0]), labels=normal_labels(test[1], name))
    return split(part, name=name, test=test_part, limit=limit, validation=validation, stratify=stratify)


def _named(features: Samples | Mapping[str, Samples]) -> Samples:
    return NamedSamples(arrays=features) if isinstance(features, Mapping) else features


def from_batches(batches: Iterable[tuple[Any, Any]], *, name: str = "the batches", validation: float = 0.1) -> Dataset:
    """A dataset from an iterable of (features, labels) batches. It is read once and kept, so it must end."""
    features, labels = [], []
    for batch_features, batch_labels in batches:
        features.append(np.asarray(batch_features))
        labels.append(np.asarray(batch_labels))
    if not features:
        raise DataError(f"{name} holds no training samples", why="the iterable gave no batch")
    return from_arrays(np.concatenate(features), np.concatenate(labels), name=name, validation=validation)


def normal_labels(labels: Any, name: str, *, values: bool = False) -> Array:
    """Labels as int64 classes or float32 values. Raises `DataError` for anything else, and for negative classes.

    In rows of labels −1 fills the end of those that are shorter than others. `values`: the labels are known to be
    values, and negative whole numbers become float32.
    """
    array = np.asarray(labels)
    if array.dtype == np.bool_ or np.issubdtype(array.dtype, np.integer):
        if array.size and int(array.min()) < (-1 if array.ndim == 2 else 0):
            if values:
                return array.astype(np.float32)
            raise DataError(
                f"{name} has the label {int(array.min())}",
                fix="number the classes from 0; if these are values, add train.loss=mse metric=mse",
            )
        return array.astype(np.int64)
    if np.issubdtype(array.dtype, np.floating):
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise DataError(f"{name} has the label {array[row]} at sample {row}", fix="remove or repair that sample")
        return array.astype(np.float32)
    raise DataError(
        f"{name} has labels of type `{array.dtype}`", fix="store whole numbers (classes) or floats (values)"
    )
