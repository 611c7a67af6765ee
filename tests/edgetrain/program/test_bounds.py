"""The runtime's look at what the caller wrote, called through ctypes, against NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.bounds import first_outside
from edgetrain.graph.ir import BOUNDED_DTYPES, PART_BOUNDED_DTYPES
from edgetrain.value_bounds import PartBounds, Region
from tests.edgetrain.program.tiny_program import tiny_artifact

ERROR_DATA = -7


def check(dtype: str, values: Any, lowest: int, highest: int, name: str = "ids") -> tuple[int, str]:
    """The code, and the words for it."""
    library = ctypes.CDLL(str(tiny_artifact("keep").library))
    library.edge_error.restype = ctypes.c_char_p
    function = library[f"edge_check_{dtype}"]
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p)
    array = np.array(values, dtype)
    return function(array.ctypes.data, array.size, lowest, highest, name.encode()), library.edge_error().decode()


@pytest.mark.parametrize("dtype", BOUNDED_DTYPES)
@given(data=st.data())
def test_a_value_is_refused_exactly_where_numpy_finds_it_outside(dtype: str, data: st.DataObject) -> None:
    held = np.iinfo(dtype)
    number = st.integers(int(held.min), int(held.max)) | st.integers(max(int(held.min), -3), 3)
    values = data.draw(st.lists(number, max_size=70))
    lowest, highest = sorted((data.draw(number), data.draw(number)))
    expected = first_outside(np.array(values, dtype), (lowest, highest))

    status, words = check(dtype, values, lowest, highest)

    assert status == (0 if expected is None else ERROR_DATA)
    if expected is not None:
        (index,) = expected
        assert words == f"`ids` holds {values[index]} at index {index}, not {lowest} to {highest}"


def test_the_words_for_the_longest_numbers_and_names_are_cut_where_they_must_be() -> None:
    held = np.iinfo("int64")
    _, words = check("int64", [held.min], int(held.max), int(held.max), "n" * 500)
    assert words == f"`{'n' * 96}` holds {held.min} at index 0, not {held.max} to {held.max}"


class CRegion(ctypes.Structure):
    """`edge_region`."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("rows", "row_step", "start", "count", "step", "length")]


def check_region(dtype: str, batch: Any, region: Region) -> tuple[int, str]:
    """The code, and the words for it."""
    library = ctypes.CDLL(str(tiny_artifact("keep").library))
    library.edge_error.restype = ctypes.c_char_p
    function = library[f"edge_check_region_{dtype}"]
    limit: Any = ctypes.c_float if dtype == "float32" else ctypes.c_int64
    function.argtypes = (ctypes.c_void_p, ctypes.POINTER(CRegion), limit, limit, ctypes.c_char_p)
    rows, elements = batch.shape
    places = CRegion(rows, elements, region.start, region.count, region.step, region.length)
    status = function(batch.ctypes.data, places, region.lowest, region.highest, b"x")
    return status, library.edge_error().decode()


@st.composite
def regions(draw: st.DrawFn, number: st.SearchStrategy[Any]) -> tuple[int, Region]:
    """With the elements of a sample that it fits into."""
    length, gap, count, start = (draw(st.integers(low, 4)) for low in (1, 0, 1, 0))
    lowest, highest = sorted((draw(number), draw(number)))
    region = Region(lowest=lowest, highest=highest, start=start, length=length, step=length + gap, count=count)
    return region.end + draw(st.integers(0, 3)), region


@pytest.mark.parametrize("dtype", PART_BOUNDED_DTYPES)
@given(data=st.data())
def test_a_region_is_refused_exactly_where_numpy_finds_it_outside(dtype: str, data: st.DataObject) -> None:
    numbers: st.SearchStrategy[Any] = st.floats(width=32, allow_nan=False, allow_infinity=False)
    values = st.floats(width=32)
    if dtype != "float32":
        held = np.iinfo(dtype)
        numbers = values = st.integers(int(held.min), int(held.max)) | st.integers(max(int(held.min), -3), 3)
    elements, region = data.draw(regions(numbers))
    rows = data.draw(st.integers(1, 4))
    inside = st.sampled_from([region.lowest, region.highest])
    batch = np.array(data.draw(st.lists(inside | values, min_size=rows * elements, max_size=rows * elements)), dtype)
    batch = batch.reshape(rows, elements)
    expected = first_outside(batch, PartBounds(regions=(region,)))

    status, words = check_region(dtype, batch, region)

    assert status == (0 if expected is None else ERROR_DATA)
    if expected is not None:
        assert f" at index {expected[0] * elements + expected[1]}, not " in words


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (7.5, "7.5"),
        (-0.25, "-0.25"),
        (1e-3, "0.001"),
        (-6.9999995, "-6.999999"),
        (123456.789, "123456.789062"),
        (1e-30, "0"),
        (2.0**62, str(2**62)),
        (-3e38, "a number beyond 64 bits"),
        (float("inf"), "a number beyond 64 bits"),
        (float("nan"), "NaN"),
    ],
)
def test_floats_are_spelled_with_six_decimals(value: float, spelled: str) -> None:
    region = Region(lowest=9.5, highest=9.75, start=0, length=1, step=1, count=1)
    _, words = check_region("float32", np.array([[value]], np.float32), region)
    found = words.removeprefix("`x` holds ").removesuffix(" at index 0, not 9.500000 to 9.750000")
    assert found == spelled or float(found) == float(spelled)
