"""Tables of other libraries, pandas, polars and pyarrow, and Parquet files, which any of them reads.

None of them is imported for a frame that the caller has made: a frame is known by what it can do.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.table import Table
from edgetrain.errors import DataError


def is_frame(value: Any) -> bool:
    """Whether it is a table with named columns: of pandas, polars or pyarrow."""
    module = type(value).__module__.partition(".")[0]
    return module in ("pandas", "polars", "pyarrow") and (len(getattr(value, "shape", ())) == 2 or _is_lazy(value))


def _is_lazy(value: Any) -> bool:
    """Whether it is a frame of polars that is not computed yet, and so has no shape."""
    return hasattr(value, "collect") and not hasattr(value, "shape")


def is_column(value: Any) -> bool:
    """Whether it is one column of such a table."""
    module = type(value).__module__.partition(".")[0]
    return module in ("pandas", "polars", "pyarrow") and len(getattr(value, "shape", (0,))) == 1


def frame_table(frame: Any, name: str = "the table") -> Table:
    """The frame as a table. Its index, where it has one, is no column."""
    if _is_lazy(frame):
        frame = frame.collect()
    header = tuple(map(str, getattr(frame, "column_names", None) or frame.columns))
    columns = [_values(frame, position, column) for position, column in enumerate(header)]
    return _table(header, columns, name)


def columns_table(columns: Mapping[str, Sequence[Any]], name: str = "the table") -> Table:
    """Columns by name as a table. Raises `DataError` where they are not of one length."""
    return _table(tuple(map(str, columns)), list(columns.values()), name)


def _table(header: tuple[str, ...], columns: Sequence[Sequence[Any]], name: str) -> Table:
    lengths = [len(values) for values in columns]
    if len(set(lengths)) > 1:
        told = ", ".join(f"`{column}` {length}" for column, length in zip(header, lengths, strict=True))
        raise DataError(f"the columns of {name} are of unequal length: {told}", fix="make them the same length")

    def rows() -> Iterator[tuple[str, Sequence[object]]]:
        for number, row in enumerate(zip(*columns, strict=True)):
            yield f"{name}, row {number}", row

    return Table(name=name, header=header, rows=rows)


def column_values(column: Any) -> Any:
    """A column as what NumPy can take."""
    return column.to_numpy() if hasattr(column, "to_numpy") else column


def parquet_table(path: Path) -> Table:
    """A Parquet file as a table, by whichever library is there. Raises `DataError` naming the extra where none is."""
    for module, read in _PARQUET.items():
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        try:
            return frame_table(read(library, path), name=str(path))
        except DataError:
            raise
        except Exception as error:  # each library has its own
            raise DataError(
                f"{path} cannot be read as Parquet", why=str(error).partition("\n")[0], fix="write it again"
            ) from error
    raise DataError(
        f"{path} needs a library that reads Parquet, and none is installed",
        why="pyarrow, polars and pandas would do",
        fix="pip install 'edgetrain[tables]'",
    )


_PARQUET: Mapping[str, Callable[[Any, Path], Any]] = {
    "pyarrow.parquet": lambda library, path: library.read_table(path),
    "polars": lambda library, path: library.read_parquet(path),
    "pandas": lambda library, path: library.read_parquet(path),
}


def _values(frame: Any, position: int, column: str) -> Sequence[Any]:
    """The cells of a column: a list, in which a missing one is None or NaN."""
    if hasattr(frame, "iloc"):  # pandas: names need not be texts, nor unique
        values: Any = frame.iloc[:, position]
    elif hasattr(frame, "get_column"):  # polars
        values = frame.get_column(column)
    else:
        values = frame.column(position)
    for convert in ("to_list", "tolist", "to_pylist"):
        if hasattr(values, convert):
            cells: list[Any] = getattr(values, convert)()
            return cells
    return list(np.asarray(values))
