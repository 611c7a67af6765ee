"""Opens CSV files as people have them: comma, semicolon, tab or bar, with or without a byte order mark.

Where the separator is no comma, a number may have a decimal comma.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from edgetrain.dataset.samples import Array
from edgetrain.dataset.table import Table
from edgetrain.errors import DataError

_SEPARATORS = ",;\t|"
MOST_LINE_CHARACTERS = 1 << 24  # a row of 100,000 columns with 160 characters each
_LOOKED_AT = 1 << 16  # characters that decide the separator
_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))  # Excel's "Unicode text"; UTF-8's is `utf-8-sig`


def csv_table(path: Path) -> Table:
    """The file as a table. Raises `DataError` where it cannot be read as text."""
    with opened_csv(path) as rows:
        header, separator = tuple(name.strip() for name in next(rows, [])), rows.separator

    def read() -> Iterator[tuple[str, Sequence[object]]]:
        with opened_csv(path) as rows:
            next(rows, [])
            for row in rows:
                if row:  # no blank line
                    yield f"{path}:{rows.line_num}", row

    return Table(name=str(path), header=header, rows=read, has_decimal_comma=separator != ",")


class CsvRows:
    """The rows of an open file, the header first; `line_num` is the line that the last one ended on."""

    def __init__(self, file: TextIO, name: str) -> None:
        beginning = file.read(_LOOKED_AT)
        file.seek(0)
        self.separator = find_separator(beginning)
        self._rows: Any = csv.reader(_lines(file, name), delimiter=self.separator, skipinitialspace=True)

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        row: list[str] = next(self._rows)
        return row

    @property
    def line_num(self) -> int:
        return int(self._rows.line_num)


@contextmanager
def opened_csv(path: Path) -> Iterator[CsvRows]:
    """The file's rows. What cannot be decoded or split while they are read is a `DataError`."""
    try:
        with path.open("rb") as raw:
            mark = raw.read(2)
        encoding = next((name for bytes_, name in _MARKS if mark == bytes_), "utf-8-sig")
        with path.open(newline="", encoding=encoding) as file:
            yield CsvRows(file, str(path))
    except (UnicodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV", why=str(error), fix="save it as UTF-8 text") from error


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """The file's lines. Raises `DataError` for one that no table of ours has, of which no more is read."""
    number = 0
    while line := file.readline(MOST_LINE_CHARACTERS + 1):
        number += 1
        if len(line) > MOST_LINE_CHARACTERS:
            raise DataError(
                f"{name}:{number} is longer than {MOST_LINE_CHARACTERS >> 20} million characters",
                why="a line is one row of a table",
                fix="put each row on a line of its own, or store the data with `numpy.savez(file, x=..., y=...)`",
            )
        yield line


def find_separator(beginning: str) -> str:
    """What separates cells: as Python's sniffer says, where the first line has it; else what is most often in there."""
    header = beginning.partition("\n")[0]
    counts = {separator: header.count(separator) for separator in _SEPARATORS}
    try:
        found = csv.Sniffer().sniff(beginning, _SEPARATORS).delimiter
    except csv.Error:  # one column, or lines of different length
        found = ""
    if counts.get(found):
        return found
    return max(_SEPARATORS, key=lambda separator: counts[separator])  # the comma where there is none


def number_labels(name: str | Path, labels: list[str]) -> tuple[Array, tuple[str, ...]]:
    """Labels as numbers where they all are, else as the numbers of their words in sorted order, and those words."""
    # One by one: in an array of texts the longest sets the size of all.
    for parse, kind in ((int, np.int64), (float, np.float32)):
        try:
            with np.errstate(over="ignore"):  # infinity, which the reader of labels refuses
                return np.fromiter(map(parse, labels), kind, len(labels)), ()
        except (ValueError, OverflowError):
            continue
    names = tuple(sorted(set(labels)))
    if "" in names:
        raise DataError(f"{name}: sample {labels.index('')} has an empty label", fix="fill it in or remove the row")
    number = {name: index for index, name in enumerate(names)}
    return np.array([number[name] for name in labels]), names
