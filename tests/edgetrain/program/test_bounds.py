"""The runtime's look at what the caller wrote, called through ctypes, against NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.bounds import first_outside
from edgetrain.graph.ir import BOUNDED_DTYPES
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
