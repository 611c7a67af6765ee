"""The cells of a table: which are empty, which are numbers, which are words."""

from __future__ import annotations

import math

import numpy as np

from edgetrain.dataset.override_hint import override_hint
from edgetrain.errors import DataError
from edgetrain.schema import close_to

Cell = object  # text, a number, or None

EMPTY = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?"})  # in columns of numbers
_MOST = float(np.finfo(np.float32).max)


def number_or_nan(place: str, column: str, cell: Cell, *, decimal_comma: bool, may_miss: bool) -> float:
    if word_of(cell).lower() not in EMPTY:
        return finite_number(place, column, cell, decimal_comma=decimal_comma)
    if may_miss:
        return math.nan
    raise DataError(
        f"{place}: column `{column}` holds `{'' if cell is None else cell}`, not a finite number",
        why="nothing says what stands for an empty cell",
        fix=f"fill it in, or add {override_hint('data.missing', 'mean')} (or median, zero, drop)",
    )


def finite_number(place: str, column: str, cell: Cell, *, decimal_comma: bool = False) -> float:
    """The cell's number, one that float32 can hold. Raises `DataError` with its place and column."""
    number = number_of(cell, decimal_comma=decimal_comma)
    if number is None or not abs(number) <= _MOST:
        raise DataError(
            f"{place}: column `{column}` holds `{cell}`, not a finite number",
            fix=f"correct the cell, or leave the column out with {override_hint('data.ignore', [column])}",
        )
    return number


def unknown_word(place: str, column: str, cell: Cell, known: tuple[str, ...]) -> DataError:
    word = word_of(cell)
    if not word:
        return DataError(
            f"{place}: column `{column}` is empty",
            why="nothing says what stands for an empty cell",
            fix=f"fill it in, or add {override_hint('data.missing', 'zero')}: then it is none of the column's words",
        )
    return DataError(
        f"{place}: column `{column}` holds `{word}`{close_to(word, known)}, which the model was not trained on",
        why=f"the words of that column are {', '.join(known)}",
        fix="correct the cell, or leave the row out",
    )


def _is_missing(cell: Cell) -> bool:
    """None, NaN, and what pandas puts in the place of a value; an empty text is judged by its column."""
    if cell is None:
        return True
    if isinstance(cell, str):
        return False
    return bool(cell != cell) if isinstance(cell, float | np.floating) else type(cell).__name__ in ("NAType", "NaTType")


def word_of(cell: Cell) -> str:
    return "" if _is_missing(cell) else str(cell).strip()


def number_of(cell: Cell, *, decimal_comma: bool) -> float | None:
    """The cell's number, None for what is none. With `decimal_comma` 1.234,5 is 1234.5, and 1.5 still 1.5."""
    if not isinstance(cell, str):
        try:
            return float(cell)  # type: ignore[arg-type]  # whatever has no number says so
        except (TypeError, ValueError):
            return None
    text = cell.strip()
    if decimal_comma and text.count(",") == 1:
        text = text.replace(".", "").replace(",", ".")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def label_of(cell: Cell, *, decimal_comma: bool) -> str:
    if isinstance(cell, bool | np.bool_):
        return str(int(cell))  # as in an array
    word = word_of(cell)
    if decimal_comma and "," in word and (number := number_of(word, decimal_comma=decimal_comma)) is not None:
        return repr(number)
    return word
