"""Claims about sensor recordings and their windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.series import read_series, window_places
from edgetrain.errors import DataError
from edgetrain.recipes import SeriesSection

SECTION = SeriesSection(window=3, hop=2)


@given(lengths=st.lists(st.integers(0, 12), max_size=5), window=st.integers(1, 6), hop=st.integers(1, 5))
def test_windows_lie_inside_their_recording_and_are_as_many_as_fit(lengths: list[int], window: int, hop: int) -> None:
    places = window_places(lengths, window=window, hop=hop)
    expected = []
    for i, length in enumerate(lengths):
        start = 0
        while start + window <= length:
            expected.append([i, start])
            start += hop
    assert places.tolist() == expected


def write_npz(path: Path, **changes: Any) -> Path:
    x = np.arange(18, dtype=np.float64).reshape(9, 2)
    arrays = {"x": x, "lengths": [5, 4], "y": [1, 0], "groups": ["b", "a"], **changes}
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_an_npz_comes_back_as_windows_with_channels_first(tmp_path: Path) -> None:
    part, names, groups = read_series(write_npz(tmp_path / "a.npz"), SECTION)
    assert names == ()
    assert part.labels.tolist() == [1, 1, 0]
    assert groups is not None
    assert groups.tolist() == ["b", "b", "a"]
    assert part.features[1].dtype == np.float32
    assert part.features[1].tolist() == [[4, 6, 8], [5, 7, 9]]
    assert part.features[2].tolist() == [[10, 12, 14], [11, 13, 15]]


def test_recordings_without_groups_are_groups_of_their_own(tmp_path: Path) -> None:
    _, _, groups = read_series(write_npz(tmp_path / "a.npz", groups=None), SECTION)
    assert groups is not None
    assert groups.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"lengths": None}, "lacks `lengths`"),
        ({"lengths": [5, 5]}, "do not fit together"),
        ({"y": [0]}, "do not fit together"),
        ({"x": np.zeros(9)}, "do not fit together"),
        ({"x": np.full((9, 2), np.nan)}, "NaN or infinity at time step 0"),
        ({"x": np.zeros((4, 2)), "lengths": [2, 2]}, "no recording of 3 time steps"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected):
        read_series(write_npz(tmp_path / "a.npz", **changes), SECTION)


CSV = "series,person,label,ax,ay\n" + "".join(
    f"r{i // 4},p{i // 8},{'up' if i < 4 else 'down'},{i},{-i}\n" for i in range(12)
)


def test_a_csv_is_one_recording_for_each_value_of_its_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    part, names, groups = read_series(tmp_path / "a.csv", SeriesSection(window=4, hop=4, group="person"))
    assert (names, part.labels.tolist()) == (("down", "up"), [1, 0, 0])
    assert groups is not None
    assert groups.tolist() == ["p0", "p0", "p1"]
    assert part.features[1].tolist() == [[4, 5, 6, 7], [-4, -5, -6, -7]]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("r0,p0,up,3", "r0,p0,down,3", r"a\.csv:5: recording `r0` changes its label"),
        ("r0,p0,up,1,-1", "r0,p0,up,x,-1", r"a\.csv:3: column `ax` holds `x`"),
        ("r0,p0,up,1,-1", "r0,p0,up,1", r"a\.csv:3 has 4 cells"),
        ("label", "kind", "no column `label`"),
    ],
)
def test_a_broken_csv_is_named_with_its_line(old: str, new: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV.replace(old, new))
    with pytest.raises(DataError, match=expected):
        read_series(tmp_path / "a.csv", SeriesSection(window=4, hop=4, group="person"))


def test_an_object_file_of_recordings_is_read(tmp_path: Path) -> None:
    recordings = [np.arange(8.0).reshape(4, 2), np.ones((3, 2))]
    data = {"X": recordings, "y": np.array([1, 0]), "subject": np.array([7, 8]), "y_labels": ["a", "b"]}
    np.save(tmp_path / "watch.npy", np.array(data, dtype=object), allow_pickle=True)
    part, names, groups = read_series(tmp_path / "watch.npy", SECTION)
    assert (names, part.labels.tolist()) == (("a", "b"), [1, 0])
    assert groups is not None
    assert groups.tolist() == [7, 8]
    assert part.features[0].tolist() == [[0, 2, 4], [1, 3, 5]]


def test_an_object_file_of_something_else_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "watch.npy", np.array({"X": []}, dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="does not hold recordings"):
        read_series(tmp_path / "watch.npy", SECTION)


def test_a_csv_may_have_semicolons_decimal_commas_and_a_byte_order_mark(tmp_path: Path) -> None:
    rows = "".join(f"r;walk;{step},5\n" for step in range(3))
    (tmp_path / "a.csv").write_text("series;label;ax\n" + rows, encoding="utf-8-sig")
    part, names, _ = read_series(tmp_path / "a.csv", SECTION)
    assert names == ("walk",)
    assert part.features[0].tolist() == [[0.5, 1.5, 2.5]]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_complex_recordings_are_refused_and_not_cut(save: Any, tmp_path: Path) -> None:
    save(tmp_path / "a.npz", x=np.ones((8, 2)) * 1j, lengths=np.array([8]), y=np.array([0]))
    with pytest.raises(DataError, match="complex"):
        read_series(tmp_path / "a.npz", SeriesSection(window=4, hop=4))


def test_complex_recordings_in_an_object_are_refused_and_not_cut(tmp_path: Path) -> None:
    data = {"X": [np.ones((8, 2)) * 1j], "y": [0], "y_labels": ["a"], "subject": [0]}
    np.save(tmp_path / "a.npy", np.array(data, dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="complex"):
        read_series(tmp_path / "a.npy", SeriesSection(window=4, hop=4))
