"""Reads CSV files: a header, numeric features, and one column with the label."""

from __future__ import annotations

import csv
import math
from array import array
from pathlib import Path

import numpy as np

from edgetrain.dataset.samples import Array, Part, normal_labels
from edgetrain.errors import DataError

_DEFAULT_LABEL = "label"


def read_csv(path: Path, label: str = "") -> tuple[Part, tuple[str, ...]]:
    """The rows as one part, and the names of the classes where labels are words (numbered in sorted order).

    Labels that are all whole numbers are classes, other numbers are values. Raises `DataError` with file, line and
    column for a cell that is not a finite number.
    """
    features, labels, columns = array("f"), [], 0
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            label_column = find_label(path, header, label)
            columns = len(header) - 1
            for row in rows:
                if not row:  # a blank line
                    continue
                line = rows.line_num
                if len(row) != len(header):
                    raise DataError(f"{path}:{line} has {len(row)} cells where the header has {len(header)}")
                labels.append(row[label_column].strip())
                features.extend(
                    parse_number(path, line, header[i], cell) for i, cell in enumerate(row) if i != label_column
                )
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV", why=str(error), fix="save it as UTF-8 text") from error
    if not labels:
        raise DataError(f"{path} is empty", why="there is no row below the header", fix="check `data.source`")
    values, names = number_labels(path, labels)
    table = np.frombuffer(features, np.float32).reshape(len(labels), columns)
    return Part(features=table, labels=normal_labels(values, str(path))), names


def find_label(path: Path, header: list[str], label: str) -> int:
    """The label's column. Raises `DataError` with the columns there are."""
    names = [name.strip() for name in header]
    wanted = label or _DEFAULT_LABEL
    if wanted not in names:
        raise DataError(
            f"{path} has no column `{wanted}`",
            why=f"its columns are {', '.join(names) or 'none: the file is empty'}",
            fix="name the label's column with `data.label`",
        )
    return names.index(wanted)


def parse_number(path: Path, line: int, column: str, cell: str) -> float:
    """The cell's finite number. Raises `DataError` with file, line and column."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(
            f"{path}:{line}: column `{column.strip()}` holds `{cell}`, not a finite number",
            fix="correct the cell, or leave the column out",
        )
    return value


def number_labels(path: Path, labels: list[str]) -> tuple[Array, tuple[str, ...]]:
    """Labels as numbers where they all are, else as the numbers of their words in sorted order, and those words."""
    for kind in (np.int64, np.float32):
        try:
            return np.array(labels, dtype=str).astype(kind), ()
        except ValueError:
            continue
    names = tuple(sorted(set(labels)))
    if "" in names:
        raise DataError(f"{path}: sample {labels.index('')} has an empty label", fix="fill it in or remove the row")
    number = {name: index for index, name in enumerate(names)}
    return np.array([number[name] for name in labels]), names
