"""Claims about tables of other libraries and Parquet files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgetrain.dataset.frames import columns_table, is_column, is_frame, parquet_table
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.table import TableSettings, read_rows
from edgetrain.errors import DataError
from edgetrain.recipes import DataSection

COLUMNS = {"a": [1.5, None, 3.0], "city": ["Rome", "Bern", None], "label": ["x", "y", "x"]}


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    library = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    table = pytest.importorskip("pyarrow", reason="needs pyarrow").table(COLUMNS)
    library.write_table(table, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_a_parquet_file_is_read_by_whichever_library_is_there(
    library: str, parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library, reason=f"needs {library}")
    if library == "polars":
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    found = read_rows(parquet_table(parquet), TableSettings(missing="drop"))
    assert found.features.tolist() == [[1.5, 0.0, 1.0]]
    assert found.labels == ["x"]


def test_a_parquet_file_is_a_data_source(parquet: Path) -> None:
    data = DataSection(source=str(parquet), missing="mean", validation=0.0)
    found = load_dataset(data)
    assert found.class_names == ("x", "y")
    assert found.reading.fills == (2.25, 0.0)
    assert [found.train.features[i].tolist() for i in range(3)] == [[1.5, 0, 1], [2.25, 1, 0], [3, 0, 0]]


def test_without_a_library_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pyarrow.parquet", "polars", "pandas"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError) as caught:
        parquet_table(tmp_path / "a.parquet")
    assert caught.value.fix == "pip install 'edgetrain[tables]'"


def test_a_damaged_parquet_file_is_a_data_error(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        parquet_table(tmp_path / "a.parquet")


def test_columns_must_be_of_one_length() -> None:
    with pytest.raises(DataError, match="`a` 2, `b` 1"):
        columns_table({"a": [1, 2], "b": [1]})


def test_an_array_is_no_frame() -> None:
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    assert not is_frame(numpy.zeros((2, 2)))
    assert is_frame(pandas.DataFrame({"a": [1]}))
    assert not is_frame(pandas.Series([1]))
    assert is_column(pandas.Series([1]))
