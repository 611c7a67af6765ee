"""From a recipe's `data` section to a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgetrain.dataset.class_order import class_numbers, renumbered
from edgetrain.dataset.csv import csv_table, number_labels
from edgetrain.dataset.file_bytes import read_file_bytes
from edgetrain.dataset.folders import first_kind
from edgetrain.dataset.frames import parquet_table
from edgetrain.dataset.idx import is_idx_folder, read_idx_folder
from edgetrain.dataset.images import SUFFIXES, read_image_folder
from edgetrain.dataset.mails import read_mails
from edgetrain.dataset.notes import require_classes, training_notes, unused_folders
from edgetrain.dataset.npz import read_npz
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Array, Dataset, Part, Rows, normal_labels, split
from edgetrain.dataset.series import read_series
from edgetrain.dataset.sources import SYSTEM, Roots, find_source
from edgetrain.dataset.table import Table, TableRows, TableSettings, read_rows
from edgetrain.dataset.table_fills import fill_missing
from edgetrain.dataset.text import read_texts
from edgetrain.dataset.wav import read_wavs
from edgetrain.errors import DataError
from edgetrain.recipes import VALUE_LOSSES, DataSection, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a reader found. `groups` names the group of each training sample; no group may be in two parts."""

    train: Part
    test: Part | None = None
    validation: Part | None = None
    class_names: tuple[str, ...] = ()
    groups: Array | None = None
    table: TableRows | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a reader is asked for. `values`: labels are values, so that whole numbers may be negative."""

    data: DataSection
    reading: Reading | None = None
    values: bool = False


def load_dataset(
    data: DataSection, *, roots: Roots = SYSTEM, reading: Reading | None = None, values: bool = False
) -> Dataset:
    """The data that the section names, limited and split as it says. Raises `DataError` for anything wrong with it.

    With the `reading` of a run, samples and labels become the numbers that they were there. `values`: the loss takes
    values, not classes.
    """
    path, known_format = find_source(data.source, roots)
    kind = data.format if data.format != "auto" else known_format
    kind = detect_format(path) if kind == "auto" else kind
    source = _READERS[kind](path, Request(data=data, reading=reading, values=values))
    notes = source.notes
    if kind in _CLASS_FOLDERS and path.is_dir() and not data.exclude:  # who excludes knows what is left out
        notes += unused_folders(path, source.class_names)
    is_own = Path(data.source).expanduser() == path  # a place that a recipe knows comes with the recipe's limit
    return dataset_of_source(source, data, name=data.source, reading=reading, notes=notes, tells_limit=is_own)


def load_recipe_data(recipe: Recipe) -> Dataset:
    """The data of a recipe, as its loss takes it. Raises as `load_dataset`."""
    return load_dataset(recipe.data, values=recipe.train.loss in VALUE_LOSSES)


def dataset_of_source(
    source: Source,
    data: DataSection,
    *,
    name: str,
    reading: Reading | None = None,
    notes: tuple[str, ...] = (),
    tells_limit: bool = True,
) -> Dataset:
    """What was read, limited and split, the empty cells of a table filled."""
    if reading is not None and reading.class_names and source.class_names:
        source = _renumbered(source, reading.class_names, where=name)
    learned = source.table.reading if source.table is not None else Reading()
    dataset = split(
        source.train,
        name=name,
        test=source.test,
        validation_part=source.validation,
        limit=data.limit,
        test_limit=data.test_limit,
        test_share=data.test,
        validation=data.validation,
        reading=replace(learned, class_names=source.class_names) if reading is None else reading,
        groups=source.groups,
        stratify=data.stratify,
    )
    if source.table is not None:
        rows = dataset.train.features.indices if isinstance(dataset.train.features, Rows) else np.arange(0)
        fills = fill_missing(source.table.features, rows, dataset.reading, data.missing)
        dataset = replace(dataset, reading=replace(dataset.reading, fills=fills))
    if reading is None:  # a run learns from it
        require_classes(dataset)
        notes += training_notes(source.train, dataset, data.limit if tells_limit else None)
    return replace(dataset, notes=notes)


def _renumbered(source: Source, known: tuple[str, ...], *, where: str) -> Source:
    """The source with its classes numbered as in `known`. Raises `DataError` for a class that is not among them."""
    numbers = class_numbers(source.class_names, known, where=where)
    return replace(
        source,
        train=renumbered(source.train, numbers),
        test=renumbered(source.test, numbers) if source.test is not None else None,
        validation=renumbered(source.validation, numbers) if source.validation is not None else None,
        class_names=known,
    )


_BY_SUFFIX: Mapping[str, str] = {
    ".npz": "npz",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "text",
}
_CLASS_FOLDERS = ("images", "wav", "text")  # each sub-folder is a class of its own
# In this order: images often have a text beside them, texts no images.
_BY_CONTENT = (("images", SUFFIXES), ("wav", frozenset({".wav"})), ("text", frozenset({".txt"})))


def detect_format(path: Path) -> str:
    """The format by the file's ending, or by what the folder holds."""
    if path.is_dir():
        if is_idx_folder(path):
            return "idx"
        return first_kind(path, _BY_CONTENT) or "images"  # whose reader says what it looked for
    if path.suffix.lower() in _BY_SUFFIX:
        return _BY_SUFFIX[path.suffix.lower()]
    raise DataError(
        f"the format of {path} is unknown",
        why="edgetrain reads .npz, .csv, .tsv, .parquet, .jsonl, and folders of images, wav, text or IDX files",
        fix="name it, like data.format=csv, or convert the file with `numpy.savez(file, x=..., y=...)`",
    )


def _csv(path: Path, request: Request) -> Source:
    return table_source(csv_table(path), request)


def _parquet(path: Path, request: Request) -> Source:
    return table_source(parquet_table(path), request)


def table_source(table: Table, request: Request) -> Source:
    """A table whose label is the column that `data.label` names."""
    rows = read_rows(table, table_settings(request.data), reading=request.reading)
    values, names = number_labels(table.name, rows.labels or [])
    labels = normal_labels(values, table.name, values=request.values)
    part = Part(features=rows.features, labels=labels)
    return Source(train=part, class_names=names, table=rows, notes=rows.notes)


def table_settings(data: DataSection) -> TableSettings:
    return TableSettings(label=data.label, ignore=data.ignore, missing=data.missing)


def _npz(path: Path, request: Request) -> Source:
    train, test = read_npz(path, values=request.values)
    return Source(train=train, test=test)


def _idx(path: Path, request: Request) -> Source:
    train, test = read_idx_folder(path)
    return Source(train=train, test=test)


def _images(path: Path, request: Request) -> Source:
    data = request.data
    found = read_image_folder(path, exclude=data.exclude, skip_broken=data.corrupt == "skip")
    return Source(
        train=found.train,
        test=found.test,
        validation=found.validation,
        class_names=found.class_names,
        notes=found.notes,
    )


def _wav(path: Path, request: Request) -> Source:
    data = request.data
    part, names, groups = read_wavs(path, data.audio, label=data.label, exclude=data.exclude)
    return Source(train=part, class_names=names, groups=groups)


def _text(path: Path, request: Request) -> Source:
    data = request.data
    part, names, groups = read_texts(path, data.text, label=data.label, exclude=data.exclude)
    return Source(train=part, class_names=names, groups=groups)


def _mails(path: Path, request: Request) -> Source:
    part, names, groups = read_mails(path, request.data.text, exclude=request.data.exclude)
    return Source(train=part, class_names=names, groups=groups)


def _series(path: Path, request: Request) -> Source:
    part, names, groups = read_series(path, request.data.series, label=request.data.label)
    return Source(train=part, class_names=names, groups=groups)


def _bytes(path: Path, request: Request) -> Source:
    part, names, groups = read_file_bytes(path, request.data.bytes, exclude=request.data.exclude)
    return Source(train=part, class_names=names, groups=groups)


_READERS: Mapping[str, Callable[[Path, Request], Source]] = {
    "csv": _csv,
    "parquet": _parquet,
    "npz": _npz,
    "idx": _idx,
    "images": _images,
    "wav": _wav,
    "text": _text,
    "mails": _mails,
    "series": _series,
    "bytes": _bytes,
}
