"""Data that a Python program holds already: arrays, lists, tables, PyTorch's datasets and loaders, iterators.

Nothing is imported for what is not there: an object is known by the module of its class and by what it can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.csv import number_labels
from edgetrain.dataset.frames import column_values, columns_table, frame_table, is_column, is_frame
from edgetrain.dataset.load import Request, Source, dataset_of_source, load_recipe_data, table_settings, table_source
from edgetrain.dataset.pictures import picture_array
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Array, Dataset, NamedSamples, Part, Samples, normal_labels
from edgetrain.dataset.table import TableRows, read_rows
from edgetrain.dataset.table_cells import word_of
from edgetrain.dataset.table_fills import fill_missing
from edgetrain.errors import DataError
from edgetrain.recipes import VALUE_LOSSES, DataSection, Recipe

_KNOWN_KEYS = (("x_train", "y_train", "x_test", "y_test"), ("x", "y", "x_test", "y_test"))
_FORMS = (
    "pass arrays (x, y), a mapping with x_train and y_train, a DataFrame and data_label, a path, a Dataset of "
    "edgetrain or PyTorch, or an iterable of (x, y)"
)
# The samplers and the collation that a PyTorch loader has unless told otherwise: its dataset says the same without it.
_PLAIN_BATCHES = "BatchSampler"
_PLAIN_SAMPLERS = ("SequentialSampler", "RandomSampler")
_PLAIN_COLLATION = "default_collate"


def dataset_of(data: Any, recipe: Recipe, *, reading: Reading | None = None) -> Dataset:
    """`data`, whatever it is, as the recipe's `data` section says. None and paths are the recipe's business.

    With the `reading` of a run, samples and labels become the numbers that they were there.
    Raises `DataError` for what is no data, or does not fit together.
    """
    match data:
        case None | str() | Path():
            return load_recipe_data(recipe)
        case Dataset():
            return data
    request = Request(data=recipe.data, reading=reading, values=recipe.train.loss in VALUE_LOSSES)
    try:
        source = _source(data, request)
    except (ValueError, TypeError) as error:  # NumPy's, about rows of unequal length
        raise DataError("the data cannot be made arrays of", why=str(error), fix=_FORMS) from error
    return dataset_of_source(source, recipe.data, name="the data", reading=reading)


def features_of(features: Any, reading: Reading, data: DataSection) -> Samples:
    """Samples without labels, as a run reads them: a table by its columns, anything else as `dataset_of` takes it."""
    if is_frame(features):
        rows = read_rows(frame_table(features), table_settings(data), reading=reading, with_labels=False)
        fill_missing(rows.features, np.arange(len(rows.features)), rows.reading, data.missing)
        return rows.features
    return _samples(features)


def _source(data: Any, request: Request) -> Source:
    if is_frame(data):
        return table_source(frame_table(data), request)
    if isinstance(data, Mapping):
        return _of_mapping(data, request)
    if _is_pair(data):
        return _of_pair(data[0], data[1], request)
    if _is_loader(data):
        plain = _dataset_of_loader(data)
        data = data if plain is None else plain
    if _is_indexed(data):
        return _of_indexed(data, request)
    if isinstance(data, Iterable) and not hasattr(data, "shape"):
        return _of_iterable(data, request)
    raise DataError(f"`{type(data).__name__}` is not data", fix=_FORMS)


def _of_mapping(data: Mapping[str, Any], request: Request) -> Source:
    for x, y, x_test, y_test in _KNOWN_KEYS:
        if x in data and y in data:
            source = _of_pair(data[x], data[y], request)
            if x_test not in data or y_test not in data:
                return source
            return replace(source, test=_test_part(data[x_test], data[y_test], source, request))
    if (request.data.label or "label") in data:
        return table_source(columns_table({name: list(values) for name, values in data.items()}, "the data"), request)
    missing = [key for key in _KNOWN_KEYS[0][:2] if key not in data]
    raise DataError(f"the data has no {' and no '.join(f'`{key}`' for key in missing)}", fix=_FORMS)


def _of_pair(features: Any, labels: Any, request: Request) -> Source:
    values, names = _labels(labels, request)
    if not is_frame(features):
        return Source(train=Part(features=_samples(features), labels=values), class_names=names)
    rows = read_rows(frame_table(features), table_settings(request.data), with_labels=False)
    return Source(train=Part(features=rows.features, labels=values), class_names=names, table=rows, notes=rows.notes)


def _test_part(features: Any, labels: Any, source: Source, request: Request) -> Part:
    """The test part, with columns and classes as in the training part."""
    if isinstance(source.table, TableRows) and is_frame(features):
        settings = table_settings(request.data)
        samples: Any = read_rows(
            frame_table(features), settings, reading=source.table.reading, with_labels=False
        ).features
    else:
        samples = _samples(features)
    values, names = _labels(labels, request)
    if names and names != source.class_names:
        unknown = sorted(set(names) - set(source.class_names))
        if unknown:
            raise DataError(
                f"the test part has the class `{unknown[0]}` that the training part lacks",
                fix="leave it out, or add samples of it to the training part",
            )
        values = np.array([source.class_names.index(name) for name in names])[values]
    return Part(features=samples, labels=values)


def _labels(labels: Any, request: Request) -> tuple[Array, tuple[str, ...]]:
    """Labels as numbers, and the names of their classes where they are words."""
    if is_frame(labels):  # one column, as `df[["label"]]` gives
        labels = np.asarray(column_values(labels))
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    array = _array(labels)
    if array.dtype.kind in "UO" and array.ndim == 1:
        # As they were given: NumPy makes the word `nan` of a label that is missing among words.
        words = [word_of(label) for label in (labels if isinstance(labels, list | tuple) else array)]
        array, names = number_labels("the data", words)
        return normal_labels(array, "the data", values=request.values), names
    return normal_labels(array, "the data", values=request.values), ()


def _samples(features: Any) -> Samples:
    if isinstance(features, Mapping):
        return NamedSamples(arrays={str(name): _samples(values) for name, values in features.items()})
    if is_frame(features) or is_column(features) or isinstance(features, list | tuple) or _is_tensor(features):
        return _array(features)
    if hasattr(features, "__getitem__") and hasattr(features, "__len__"):
        return features  # type: ignore[no-any-return]  # an array, or samples that are loaded when asked for
    return _array(list(features))


def _array(values: Any) -> Array:
    """An array of numbers or words: of arrays, lists, tensors, columns and pictures."""
    if _is_tensor(values):
        return np.asarray(values.detach().cpu())
    if hasattr(values, "getbands"):
        return picture_array(values)
    if is_frame(values) or is_column(values):
        values = column_values(values)
    if isinstance(values, list | tuple) and values and (_is_tensor(values[0]) or hasattr(values[0], "getbands")):
        return np.stack([_array(value) for value in values])
    return np.asarray(values)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "cpu")


def _is_pair(data: Any) -> bool:
    """Whether it is (features, labels): two of one length, the second one label for each sample.

    A list of two (x, y) batches or samples is no pair: its items are tuples.
    """
    if not isinstance(data, tuple | list) or len(data) != 2 or (isinstance(data[0], tuple) and len(data[0]) == 2):
        return False
    features, labels = data
    if isinstance(features, Mapping):
        return hasattr(labels, "__len__")
    return hasattr(labels, "__len__") and (hasattr(features, "__len__") or hasattr(features, "__iter__"))


def _is_from(value: Any, module: str) -> bool:
    return any(kind.__module__.startswith(module) for kind in type(value).__mro__)


def _is_loader(value: Any) -> bool:
    return _is_from(value, "torch.utils.data.dataloader") and hasattr(value, "dataset")


def _dataset_of_loader(loader: Any) -> Any | None:
    """The loader's dataset where it gives the same samples: then they are loaded when they are needed."""
    batches = getattr(loader, "batch_sampler", None)  # with one of the user's own, `loader.sampler` says nothing
    sampler: Any = getattr(batches, "sampler", None)
    is_plain = (
        type(batches).__name__ == _PLAIN_BATCHES
        and type(sampler).__name__ in _PLAIN_SAMPLERS
        and not getattr(sampler, "replacement", False)
        and getattr(getattr(loader, "collate_fn", None), "__name__", "") == _PLAIN_COLLATION
    )
    return loader.dataset if is_plain and _is_indexed(loader.dataset) and len(sampler) == len(loader.dataset) else None


def _is_indexed(value: Any) -> bool:
    """Whether it gives (sample, label) by index, as a dataset of PyTorch does."""
    return (
        hasattr(value, "__getitem__")
        and hasattr(value, "__len__")
        and not isinstance(value, Sequence | Mapping)
        and not hasattr(value, "shape")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedSamples:
    """The samples of an object that gives (sample, label) by index, loaded when they are needed."""

    source: Any

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any, /) -> Any:
        return _sample(self.source[int(index)][0])


def _sample(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _array(part) for name, part in value.items()}
    return _array(value)


def _of_indexed(data: Any, request: Request) -> Source:
    """Its labels are read at once; datasets of torchvision have them as `targets`, others are gone through."""
    targets = getattr(data, "targets", None)
    if targets is None or not hasattr(targets, "__len__") or len(targets) != len(data):
        targets = [_pair_of(data[index])[1] for index in range(len(data))]
    values, names = _labels([_scalar(label) for label in targets], request)
    classes = getattr(data, "classes", ())
    if not names and isinstance(classes, list | tuple) and all(isinstance(name, str) for name in classes):
        is_numbered = np.issubdtype(values.dtype, np.integer) and int(values.max(initial=0)) < len(classes)
        names = tuple(classes) if is_numbered else ()
    return Source(train=Part(features=IndexedSamples(source=data), labels=values), class_names=names)


def _of_iterable(data: Iterable[Any], request: Request) -> Source:
    """(x, y) of single samples or of batches. It is read once and kept, so it must end."""
    samples: list[Any] = []
    labels: list[Any] = []
    for item in data:
        features, label = _pair_of(item)
        if np.ndim(_array(label)) == 0:
            samples.append(_sample(features))
            labels.append(_scalar(label))
        else:
            samples += _rows(features)
            labels += list(_array(label))
    if not samples:
        raise DataError("the data holds no training samples", why="the iterable gave nothing", fix=_FORMS)
    values, names = _labels(labels, request)
    return Source(train=Part(features=_stacked(samples), labels=values), class_names=names)


def _rows(features: Any) -> list[Any]:
    """The samples of a batch."""
    if isinstance(features, Mapping):
        arrays = {str(name): _array(values) for name, values in features.items()}
        return [dict(zip(arrays, row, strict=True)) for row in zip(*arrays.values(), strict=True)]
    return list(_array(features))


def _stacked(samples: list[Any]) -> Samples:
    """One array where all samples have one shape; pictures of several sizes stay a list."""
    if isinstance(samples[0], Mapping):
        return NamedSamples(arrays={name: np.stack([sample[name] for sample in samples]) for name in samples[0]})
    return np.stack(samples) if len({np.shape(sample) for sample in samples}) == 1 else samples


def _pair_of(item: Any) -> tuple[Any, Any]:
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise DataError(
        f"an item of the data is `{type(item).__name__}`, not (x, y)",
        why="a model is trained on samples with their labels",
        fix=_FORMS,
    )


def _scalar(label: Any) -> Any:
    """A label as Python or NumPy has it, without PyTorch's wrapping."""
    if _is_tensor(label) or isinstance(label, np.ndarray):
        array = _array(label)
        return array.item() if array.ndim == 0 else array
    return label
