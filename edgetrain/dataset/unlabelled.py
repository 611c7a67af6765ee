"""Samples without labels, to predict: files, and folders of them, each opened by the reader that a run trained with.

A sample has a name that says where it came from: `photos/1.png`, `table.csv:17`, `windows.npz[3]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.csv import csv_table
from edgetrain.dataset.file_bytes import file_tokens
from edgetrain.dataset.frames import frame_table, parquet_table
from edgetrain.dataset.idx import read_idx
from edgetrain.dataset.images import SUFFIXES, ImageFiles
from edgetrain.dataset.load import detect_format, table_settings
from edgetrain.dataset.log_mel import log_mel
from edgetrain.dataset.mails import read_mail
from edgetrain.dataset.npz import read_npz_features
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Array, Sample
from edgetrain.dataset.series import Windows, window_places
from edgetrain.dataset.sources import find_source
from edgetrain.dataset.table import DEFAULT_LABEL, Table, read_rows
from edgetrain.dataset.table_cells import Cell, finite_number, word_of
from edgetrain.dataset.table_fills import fill_missing
from edgetrain.dataset.text import Tokenizer, tokenizer_of
from edgetrain.dataset.text_files import json_record, jsonl_lines, read_text
from edgetrain.dataset.wav import log_mel_of, opened
from edgetrain.errors import DataError
from edgetrain.files.regular_file import require_regular
from edgetrain.recipes import DataSection

_AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One sample. `load` opens it, and raises `DataError` where it cannot be read."""

    name: str
    load: Callable[[], Sample]


@dataclass(frozen=True, kw_only=True)
class _How:
    """What a run says about its data."""

    data: DataSection
    reading: Reading
    kind: str  # the format of the run's own data, `auto` where that is not known any more

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_of(self.data.text)


def data_kind(data: DataSection) -> str:
    """The format of the data that a run was trained on; `auto` where it is not said and the data is gone."""
    if data.format != _AUTO:
        return data.format
    try:
        path, kind = find_source(data.source)
        return detect_format(path) if kind == _AUTO else kind
    except DataError:
        return _AUTO


def unlabelled(paths: Sequence[Path], data: DataSection, reading: Reading, *, kind: str = "") -> tuple[Item, ...]:
    """The samples in files and folders, in the order of `paths`, and by name within a folder.

    A path that is missing or cannot be opened is an item too, whose `load` says so: the others can still be predicted.
    """
    how = _How(data=data, reading=reading, kind=kind or data_kind(data))
    return tuple(item for path in paths for item in _of_path(path, how))


def unlabelled_rows(frame: Any, data: DataSection, reading: Reading) -> tuple[Item, ...]:
    """The rows of a DataFrame, named by their index. Each says itself what is wrong with it, as in a file."""
    items = _rows_of_table(frame_table(frame), _How(data=data, reading=reading, kind="csv"))
    return tuple(replace(item, name=str(row)) for row, item in enumerate(items))


def _of_path(path: Path, how: _How) -> Iterator[Item]:
    try:
        if path.is_dir():
            for file in _files_below(path, how):
                yield from _of_path(file, how)
            return
        if not path.exists():
            raise DataError(f"there is no file {path}", fix="check the path")
        require_regular(path, DataError)
        # A list, so that a file that breaks in its middle is one error and not some samples and one.
        yield from list(_OPENERS[_kind_of(path, how)](path, how))
    except (DataError, OSError) as error:
        yield Item(name=str(path), load=partial(_refuse, path, error))


def _refuse(path: Path, error: DataError | OSError) -> Sample:
    if isinstance(error, DataError):
        raise error
    raise DataError(f"{path} cannot be read", why=error.strerror or str(error), fix="check its permissions") from error


def _kind_of(path: Path, how: _How) -> str:
    """By the file's ending; runs on bytes, mails and series read every file as what they were trained on."""
    if how.kind in _WHATEVER_THE_NAME:
        return how.kind
    found = _BY_ENDING.get(path.suffix.lower())
    if found == "csv" and how.kind == "series":
        return "series"
    if found is not None:
        return found
    if how.kind in _OPENERS:
        return how.kind
    raise DataError(
        f"the format of {path} is unknown",
        why=f"edgetrain knows files that end in {', '.join(sorted(_BY_ENDING))}",
        fix="rename the file, or convert it to one of them",
    )


def _files_below(folder: Path, how: _How) -> list[Path]:
    """The folder's files of one kind: the run's, else the first that is there. Hidden ones are left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path, folder))
    if how.kind not in _WHATEVER_THE_NAME:
        kinds = [_BY_ENDING.get(path.suffix.lower(), "") for path in files]
        preferred = "csv" if how.kind == "series" else how.kind
        chosen = next((kind for kind in (preferred, *_OPENERS) if kind in kinds), None)
        files = [path for path, kind in zip(files, kinds, strict=True) if kind == chosen]
    if not files:
        raise DataError(
            f"{folder} holds no file that can be predicted",
            why=f"looked for files that end in {', '.join(sorted(_BY_ENDING))}",
            fix="name the files themselves",
        )
    return files


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _image(path: Path, how: _How) -> Iterator[Item]:
    yield Item(name=str(path), load=lambda: ImageFiles(paths=(path,))[0])


def _wav(path: Path, how: _How) -> Iterator[Item]:
    settings = log_mel_of(how.data.audio)

    def load() -> Sample:
        with opened(path) as recording:
            return log_mel(recording, settings)

    yield Item(name=str(path), load=load)


def _text(path: Path, how: _How) -> Iterator[Item]:
    if path.suffix.lower() != ".jsonl":
        yield _of_text(str(path), lambda: read_text(path), how)
        return
    for number, line in jsonl_lines(path):
        yield _of_text(f"{path}:{number}", partial(_text_of_line, path, number, line), how)


def _of_text(name: str, text: Callable[[], str], how: _How) -> Item:
    return Item(name=name, load=lambda: how.tokenizer.inputs(text(), how.data.text.length))


def _text_of_line(path: Path, number: int, line: str) -> str:
    record = json_record(f"{path}:{number}", line, example='write {"text": "..."}')
    if not isinstance(record.get("text"), str):
        raise DataError(f"{path}:{number} has no `text`", fix='write lines like {"text": "..."}')
    return str(record["text"])


def _mail(path: Path, how: _How) -> Iterator[Item]:
    yield _of_text(str(path), lambda: read_mail(path), how)


def _bytes(path: Path, how: _How) -> Iterator[Item]:
    yield Item(name=str(path), load=lambda: file_tokens(path, how.data.bytes))


def _npz(path: Path, how: _How) -> Iterator[Item]:
    return _rows(path, read_npz_features(path))


def _idx(path: Path, how: _How) -> Iterator[Item]:
    return _rows(path, read_idx(path))


def _rows(path: Path, features: Any) -> Iterator[Item]:
    return (Item(name=f"{path}[{i}]", load=partial(features.__getitem__, i)) for i in range(len(features)))


def _table(path: Path, how: _How) -> Iterator[Item]:
    return _rows_of_table(parquet_table(path) if path.suffix.lower() == ".parquet" else csv_table(path), how)


def _rows_of_table(table: Table, how: _How) -> Iterator[Item]:
    """A row is read by itself: one that is broken spoils no other."""
    reading = how.reading if how.reading.columns else _reading_of(table, how)
    return (Item(name=place, load=partial(_row, table, place, row, reading, how)) for place, row in _rows_of(table))


def _rows_of(table: Table) -> list[tuple[str, Sequence[Cell]]]:
    rows = list(table.rows())
    if not rows:
        raise DataError(f"{table.name} is empty", why="there is no row below the header", fix="give a table with rows")
    return rows


def _reading_of(table: Table, how: _How) -> Reading:
    """For a run that knows no columns: all but the label's."""
    label = how.data.label or DEFAULT_LABEL
    return Reading(columns=tuple(name for name in table.header if name and name != label))


def _row(table: Table, place: str, row: Sequence[Cell], reading: Reading, how: _How) -> Array:
    alone = replace(table, rows=lambda: iter([(place, row)]))
    read = read_rows(alone, table_settings(how.data), reading=reading, with_labels=False)
    fill_missing(read.features, np.arange(1), reading, how.data.missing)
    row_of_numbers: Array = read.features[0]
    return row_of_numbers


def _series(path: Path, how: _How) -> Iterator[Item]:
    """The windows of each recording in the table; the columns of the label and the group need not be there."""
    table, series = csv_table(path), how.data.series
    besides = {how.data.label or DEFAULT_LABEL, series.series, series.group}
    channels = [i for i, name in enumerate(table.header) if name not in besides]
    key = table.header.index(series.series) if series.series in table.header else None
    recordings: dict[str, list[list[float]]] = {}
    for place, row in _rows_of(table):
        if len(row) != len(table.header):
            raise DataError(f"{place} has {len(row)} cells where the header has {len(table.header)}")
        cells = [finite_number(place, table.header[i], row[i], decimal_comma=table.has_decimal_comma) for i in channels]
        recordings.setdefault(word_of(row[key]) if key is not None else "", []).append(cells)
    for name, steps in recordings.items():
        values = np.array(steps, np.float32)
        where = f"{path}:{name}" if name else str(path)
        places = window_places([len(values)], window=series.window, hop=series.hop)
        if not len(places):
            raise DataError(f"{where} has {len(values)} time steps", why=f"the model reads {series.window} at a time")
        windows = Windows(values=(values,), places=places, window=series.window)
        for i in range(len(windows)):
            yield Item(name=f"{where}[{places[i][1]}]", load=partial(windows.__getitem__, i))


_OPENERS: Mapping[str, Callable[[Path, _How], Iterator[Item]]] = {
    "images": _image,
    "wav": _wav,
    "text": _text,
    "csv": _table,
    "parquet": _table,
    "npz": _npz,
    "idx": _idx,
    "series": _series,
    "mails": _mail,
    "bytes": _bytes,
}
_WHATEVER_THE_NAME = ("mails", "bytes")
_BY_ENDING: Mapping[str, str] = {
    **dict.fromkeys(SUFFIXES, "images"),
    ".wav": "wav",
    ".txt": "text",
    ".jsonl": "text",
    ".csv": "csv",
    ".parquet": "parquet",
    ".npz": "npz",
}
