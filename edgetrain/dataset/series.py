"""Reads sensor recordings of any length and cuts them into windows of one length.

    CSV: series,group,label,ax,ay,az      one time step a row, the rows of a recording in order
    npz: x (all steps, channels), lengths, y and groups (one for each recording)

A sample is (channels, time steps). `group` is the person, or whatever must not be in two parts of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.csv import number_labels, opened_csv
from edgetrain.dataset.npz import read_npz_arrays
from edgetrain.dataset.object_array import read_object_array
from edgetrain.dataset.override_hint import override_hint
from edgetrain.dataset.samples import Array, Part, normal_labels
from edgetrain.dataset.table import find_label
from edgetrain.dataset.table_cells import finite_number
from edgetrain.errors import DataError
from edgetrain.recipes import SeriesSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Recordings:
    """`values[i]` is (time steps, channels); labels and groups are one for each recording."""

    values: tuple[Array, ...]
    labels: Array
    groups: Array | None
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows by index, float32 of the shape (channels, time steps). Nothing is copied until asked for."""

    values: tuple[Array, ...]
    places: Array  # (windows, 2): recording, first time step
    window: int

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any, /) -> Array:
        recording, start = self.places[int(index)]
        return np.ascontiguousarray(self.values[recording][start : start + self.window].T, np.float32)


def read_series(path: Path, series: SeriesSection, *, label: str = "") -> tuple[Part, tuple[str, ...], Array | None]:
    """The windows with their labels, the names of the classes, and the group of each window.

    Recordings without groups are groups of their own, so that windows that overlap stay together.
    Raises `DataError` where no recording is as long as a window.
    """
    recordings = _READERS.get(path.suffix.lower(), _read_csv)(path, series, label)
    places = window_places([len(values) for values in recordings.values], window=series.window, hop=series.hop)
    if not len(places):
        longest = max((len(values) for values in recordings.values), default=0)
        raise DataError(
            f"{path} has no recording of {series.window} time steps",
            why=f"the longest has {longest}",
            fix=f"use windows of fewer time steps, like {override_hint('data.series.window', max(longest, 1))}",
        )
    groups = recordings.groups if recordings.groups is not None else np.arange(len(recordings.values))
    part = Part(
        features=Windows(values=recordings.values, places=places, window=series.window),
        labels=recordings.labels[places[:, 0]],
    )
    return part, recordings.class_names, groups[places[:, 0]]


def window_places(lengths: Sequence[int], *, window: int, hop: int) -> Array:
    """Recording and first step of each window that lies wholly inside its recording."""
    places = [(i, start) for i, length in enumerate(lengths) for start in range(0, length - window + 1, hop)]
    return np.array(places, np.intp).reshape(-1, 2)


def _read_npz(path: Path, series: SeriesSection, label: str) -> Recordings:
    arrays = read_npz_arrays(path)
    missing = [name for name in ("x", "lengths", "y") if name not in arrays]
    if missing:
        raise DataError(
            f"{path} lacks {', '.join(f'`{name}`' for name in missing)}",
            why=f"it holds {', '.join(sorted(arrays)) or 'nothing'}",
            fix="store `x` (all time steps, channels), `lengths`, `y` and perhaps `groups`, one for each recording",
        )
    x, lengths, groups = arrays["x"], arrays["lengths"], arrays.get("groups")
    counts = {len(values) for values in (lengths, arrays["y"], groups) if values is not None}
    if x.ndim != 2 or int(np.sum(lengths)) != len(x) or len(counts) != 1:
        raise DataError(
            f"the arrays of {path} do not fit together",
            why=f"x has the shape {list(x.shape)}, the lengths add up to {int(np.sum(lengths))}",
            fix="make `x` two-dimensional, and `lengths`, `y` and `groups` one for each recording",
        )
    return Recordings(
        values=tuple(np.split(_finite(x, path), np.cumsum(lengths)[:-1])),
        labels=normal_labels(arrays["y"], f"{path}: `y`"),
        groups=groups,
    )


def _read_csv(path: Path, series: SeriesSection, label: str) -> Recordings:
    steps: dict[str, list[list[float]]] = {}
    facts: dict[str, tuple[str, str]] = {}  # recording -> label, group
    with opened_csv(path) as rows:
        has_decimal_comma = rows.separator != ","
        header = [name.strip() for name in next(rows, [])]
        label_at = find_label(str(path), header, label)
        series_at, group_at = (header.index(n) if n in header else None for n in (series.series, series.group))
        channels = [i for i in range(len(header)) if i not in (label_at, series_at, group_at)]
        for row in filter(None, rows):
            place = f"{path}:{rows.line_num}"
            if len(row) != len(header):
                raise DataError(f"{place} has {len(row)} cells where the header has {len(header)}")
            fact = (row[label_at].strip(), row[group_at].strip() if group_at is not None else "")
            key = row[series_at].strip() if series_at is not None else "\0".join(fact)
            if facts.setdefault(key, fact) != fact:
                raise DataError(
                    f"{place}: recording `{key}` changes its label or group",
                    fix=f"give each recording a value of its own in the column `{series.series}`",
                )
            cells = [finite_number(place, header[i], row[i], decimal_comma=has_decimal_comma) for i in channels]
            steps.setdefault(key, []).append(cells)
    if not steps:
        raise DataError(f"{path} is empty", why="there is no row below the header", fix="check `data.source`")
    values, names = number_labels(path, [word for word, _ in facts.values()])
    return Recordings(
        values=tuple(np.array(recording, np.float32) for recording in steps.values()),
        labels=normal_labels(values, str(path)),
        groups=np.array([group for _, group in facts.values()]) if group_at is not None else None,
        class_names=names,
    )


def _read_watch(path: Path, series: SeriesSection, label: str) -> Recordings:
    """seglearn's file: a dictionary of recordings `X`, exercises `y` with `y_labels`, and `subject`."""
    data = read_object_array(path)
    try:
        values = tuple(_finite(_real(np.asarray(recording), path), path) for recording in data["X"])
        return Recordings(
            values=values,
            labels=normal_labels(data["y"], f"{path}: `y`"),
            groups=np.asarray(data["subject"]),
            class_names=tuple(map(str, data["y_labels"])),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{path} does not hold recordings", why=str(error), fix="check `data.source`") from error


def _real(values: Array, path: Path) -> Array:
    if values.dtype.kind == "c":
        raise DataError(f"{path} holds complex numbers", fix="store their real and imaginary part as two channels")
    return values.astype(np.float32)


def _finite(values: Array, path: Path) -> Array:
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise DataError(f"{path} holds NaN or infinity at time step {row}", fix="remove or repair it")
    return values


_READERS: Mapping[str, Any] = {".npz": _read_npz, ".npy": _read_watch, ".csv": _read_csv, ".tsv": _read_csv}
