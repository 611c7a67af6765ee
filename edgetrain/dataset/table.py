"""A table's rows as numbers: which columns are features, what a word becomes, what stands for an empty cell.

The rows are read twice, and never all kept: the first time to see what each column holds.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgetrain.dataset.override_hint import override_hint
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Array
from edgetrain.dataset.table_cells import EMPTY, Cell, label_of, number_of, number_or_nan, unknown_word, word_of
from edgetrain.dataset.table_fills import FILLS
from edgetrain.errors import DataError
from edgetrain.schema import close_to

DEFAULT_LABEL = "label"
MOST_COLUMNS = 100_000
_SHOWN = 50  # names of columns in a message
MOST_WORDS = 100  # distinct words in a column: more are names or texts, of which a word in a new row is never known


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Named columns, and rows that can be read again and again, each with where it is: a line of a file, a row."""

    name: str
    header: tuple[str, ...]
    rows: Callable[[], Iterator[tuple[str, Sequence[Cell]]]]
    has_decimal_comma: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """The keys of `data` that are about tables."""

    label: str = ""
    ignore: tuple[str, ...] = ()
    missing: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """The features as float32, NaN where a cell is empty; the labels as they stand, None where they were not asked for.

    `reading` has no fills yet: what stands for an empty cell is a fact of the training part.
    """

    features: Array
    labels: list[str] | None
    reading: Reading
    notes: tuple[str, ...] = ()


def read_rows(
    table: Table, settings: TableSettings, *, reading: Reading | None = None, with_labels: bool = True
) -> TableRows:
    """The rows as numbers; with the `reading` of a run, the same numbers as they were there.

    Raises `DataError` for a cell that is no finite number, naming its place, and for columns that are missing.
    """
    header = tuple(name.strip() for name in table.header)
    if len(header) > MOST_COLUMNS:
        raise DataError(
            f"{table.name} has {len(header)} columns, and a table here has {MOST_COLUMNS} at most",
            why="each column is looked at by itself: whether it holds words, and what stands for empty cells",
            fix="store the numbers as one array with `numpy.savez(file, x=..., y=...)`",
        )
    _require_distinct(table, header)
    label = find_label(table.name, header, settings.label) if with_labels else None
    notes: list[str] = []
    if reading is not None and reading.columns:
        columns = _known_columns(table, header, reading)
        known = reading
    else:
        columns = _feature_columns(table, header, settings, label, notes)
        known = _survey(table, header, columns, settings, notes)
    features, labels = _read(table, columns, label, known, settings)
    if not len(features):
        raise DataError(f"{table.name} is empty", why="there is no row below the header", fix="check `data.source`")
    return TableRows(features=features, labels=labels, reading=known, notes=tuple(notes))


def find_label(name: str, header: Sequence[str], label: str) -> int:
    """The label's column. Raises `DataError` with the columns there are, and an override that names one."""
    wanted = label or DEFAULT_LABEL
    if wanted in header:
        return header.index(wanted)
    named = [column for column in header if column]
    if not named:
        raise DataError(f"{name} has no column `{wanted}`", why="the file is empty", fix="check `data.source`")
    if all(number_of(column, decimal_comma=True) is not None for column in named):
        raise DataError(
            f"{name} has no column `{wanted}`",
            why=f"its first line holds numbers ({', '.join(named[:4])}, …), not the names of columns",
            fix="put a line with the names of the columns above it",
        )
    lower = {column.lower(): column for column in named}
    guess = lower.get(wanted.lower(), named[-1])
    raise DataError(
        f"{name} has no column `{wanted}`{close_to(wanted, named)}",
        why=f"its columns are {listed(named)}",
        fix=f"name the label's column, like {override_hint('data.label', guess)}",
    )


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def misfit(error: DataError, reading: Reading) -> DataError:
    """A table that does not fit the model's input: the error with what the table's columns became."""
    words = {name: f"{name} ({len(known)} words)" for name, known in reading.categories.items()}
    numbers = len(reading.columns) - len(words) + sum(map(len, reading.categories.values()))
    example = override_hint("data.ignore", [reading.columns[0]])
    return DataError(
        error.what,
        why=f"the table gives {numbers} numbers a row: {', '.join(words.get(name, name) for name in reading.columns)}",
        fix=f"leave columns out, like {example}, or use a model with {numbers} inputs",
    )


def _require_distinct(table: Table, header: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if twice:
        raise DataError(f"{table.name} has two columns `{twice[0]}`", fix="give each column a name of its own")


def _feature_columns(
    table: Table, header: tuple[str, ...], settings: TableSettings, label: int | None, notes: list[str]
) -> tuple[int, ...]:
    unknown = [name for name in settings.ignore if name not in header]
    if unknown:
        raise DataError(
            f"{table.name} has no column `{unknown[0]}`, which `data.ignore` names{close_to(unknown[0], header)}",
            why=f"its columns are {listed(header)}",
            fix="correct `data.ignore`",
        )
    if "" in header:
        notes.append(f"{table.name}: the column without a name is left out")
    columns = tuple(i for i, name in enumerate(header) if name and i != label and name not in settings.ignore)
    if not columns:
        raise DataError(
            f"{table.name} has no column besides the label",
            why=f"its columns are {listed(header)}"
            + (f"; ignored: {', '.join(settings.ignore)}" if settings.ignore else ""),
            fix="add columns with what the model reads",
        )
    return columns


def _known_columns(table: Table, header: tuple[str, ...], reading: Reading) -> tuple[int, ...]:
    places = {name: index for index, name in enumerate(header)}
    missing = [name for name in reading.columns if name not in places]
    if missing:
        raise DataError(
            f"{table.name} has no column `{missing[0]}`{close_to(missing[0], header)}, which the model reads",
            why=f"its columns are {listed(header)}; the model reads {', '.join(reading.columns)}",
            fix="name the columns as in the training data",
        )
    return tuple(places[name] for name in reading.columns)


@dataclass(slots=True)
class _Seen:
    """What a column holds."""

    numbers: int = 0
    texts: int = 0
    words: set[str] = field(default_factory=set)

    @property
    def holds_words(self) -> bool:
        """A single word among numbers is a mistake in a cell, not a column of words."""
        return self.texts > self.numbers


def _survey(
    table: Table, header: tuple[str, ...], columns: Sequence[int], settings: TableSettings, notes: list[str]
) -> Reading:
    """Which columns hold words, and which words those are."""
    seen = {i: _Seen() for i in columns}
    for place, row in table.rows():
        _require_cells(place, row, len(header))
        for i, column in seen.items():
            word = word_of(row[i])
            if not word:
                continue
            if number_of(row[i], decimal_comma=table.has_decimal_comma) is not None:
                column.numbers += 1
            elif word.lower() not in EMPTY:
                column.texts += 1
            if len(column.words) <= MOST_WORDS:  # numbers too: among words they are words
                column.words.add(word)
    categories = {header[i]: column for i, column in seen.items() if column.holds_words}
    many = [name for name, column in categories.items() if len(column.words) > MOST_WORDS]
    if many:
        raise DataError(
            f"{table.name}: the column{'s' if len(many) > 1 else ''} {', '.join(f'`{name}`' for name in many)} "
            f"hold{'' if len(many) > 1 else 's'} more than {MOST_WORDS} different words",
            why="a column of words becomes one input for each word, which makes no sense of names, dates or texts",
            fix=f"leave out what is no feature with {override_hint('data.ignore', [*settings.ignore, *many])}",
        )
    words = {name: tuple(sorted(column.words)) for name, column in categories.items()}
    notes += [
        f"the column `{name}` holds words: it becomes {len(known)} inputs ({_shortly(known)})"
        for name, known in words.items()
    ]
    return Reading(columns=tuple(header[i] for i in columns), categories=words)


def _shortly(words: tuple[str, ...]) -> str:
    return ", ".join(words[:4]) + (", …" if len(words) > 4 else "")


def _read(
    table: Table, columns: Sequence[int], label: int | None, reading: Reading, settings: TableSettings
) -> tuple[Array, list[str] | None]:
    vocabularies = [reading.categories.get(name) for name in reading.columns]
    width = sum(1 if words is None else len(words) for words in vocabularies)
    numbers = [None if words is None else {word: i for i, word in enumerate(words)} for words in vocabularies]
    drops = settings.missing == "drop" and label is not None  # who asks for predictions wants one for each row
    may_miss = drops or settings.missing in FILLS or bool(reading.fills)
    features, labels, count = array("f"), [], 0
    for place, row in table.rows():
        _require_cells(place, row, len(table.header))
        values = array("f")
        is_whole = True
        for index, name, known in zip(columns, reading.columns, numbers, strict=True):
            if known is not None:
                at = known.get(word_of(row[index]))
                if at is None and not may_miss:
                    raise unknown_word(place, name, row[index], tuple(known))
                is_whole &= at is not None
                values.extend(1.0 if i == at else 0.0 for i in range(len(known)))
                continue
            number = number_or_nan(place, name, row[index], decimal_comma=table.has_decimal_comma, may_miss=may_miss)
            is_whole &= not math.isnan(number)
            values.append(number)
        word = "" if label is None else label_of(row[label], decimal_comma=table.has_decimal_comma)
        is_labelled = label is None or word != ""
        if drops and not (is_whole and is_labelled):
            continue
        if not is_labelled:
            raise DataError(
                f"{place}: sample {count} has an empty label",
                fix=f"fill it in, or leave such rows out with {override_hint('data.missing', 'drop')}",
            )
        features.extend(values)
        labels.append(word)
        count += 1
    table_of_numbers = np.frombuffer(features, np.float32) if count else np.zeros(0, np.float32)
    return table_of_numbers.reshape(count, width), None if label is None else labels


def _require_cells(place: str, row: Sequence[Cell], count: int) -> None:
    if len(row) != count:
        raise DataError(
            f"{place} has {len(row)} cells where the header has {count}",
            fix="correct the line; a cell that holds the separator stands in quotes",
        )
