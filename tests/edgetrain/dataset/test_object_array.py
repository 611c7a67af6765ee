"""Claims about reading pickled arrays: arrays come back, and nothing a file names is run."""

from __future__ import annotations

import contextlib
import pickle
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.dataset.object_array import read_object_array
from edgetrain.errors import DataError


def save(path: Path, value: Any) -> Path:
    np.save(path, np.array(value, dtype=object), allow_pickle=True)
    return path


def with_pickle(path: Path, content: bytes) -> Path:
    """A file whose header is right and whose pickle is `content`."""
    save(path, {})
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"\n") + 1] + content)
    return path


def test_arrays_lists_and_texts_come_back(tmp_path: Path) -> None:
    value = {"a": [np.arange(6.0).reshape(2, 3), np.ones(2)], "b": np.array([1, 2]), "c": ["x", "y"], "d": 5}
    found = read_object_array(save(tmp_path / "a.npy", value))
    assert found.keys() == value.keys()
    assert np.array_equal(found["a"][0], np.arange(6.0).reshape(2, 3))
    assert np.array_equal(found["b"], [1, 2])
    assert (found["c"], found["d"]) == (["x", "y"], 5)


class _Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_names_code_is_refused_before_it_runs(protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = with_pickle(tmp_path / "a.npy", pickle.dumps(_Bomb(marker), protocol=protocol))
    with pytest.raises(DataError, match="cannot be read safely"):
        read_object_array(path)
    assert not marker.exists()


@pytest.mark.parametrize("name", [b"numpy\nndarray", b"_codecs\nencode", b"numpy\ndtype"])
def test_what_a_pickle_names_is_not_changed_by_it(name: bytes, tmp_path: Path) -> None:
    """`BUILD` sets attributes, and what is named is ours: the array's name could become a type of any letters."""
    attributes = b"}X\x04\x00\x00\x00codeX\x04\x00\x00\x00O,i4s"
    for state in (attributes, b"N" + attributes + b"\x86"):
        path = with_pickle(tmp_path / "a.npy", b"\x80\x02c" + name + b"\n" + state + b"b0N.")
        with pytest.raises(DataError, match="cannot be read safely"):
            read_object_array(path)


def test_bytes_in_another_encoding_are_refused(tmp_path: Path) -> None:
    rot = b"c_codecs\nencode\n(X\x03\x00\x00\x00abcX\x05\x00\x00\x00rot13tR."
    with pytest.raises(DataError, match="cannot be read safely") as caught:
        read_object_array(with_pickle(tmp_path / "a.npy", rot))
    assert "rot13" in caught.value.why


def test_a_plain_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(DataError, match="plain array"):
        read_object_array(tmp_path / "a.npy")


class _Call:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


class _State:
    """Pickles as an array type whose state is set by hand."""

    def __init__(self, *state: Any) -> None:
        self.state = state

    def __reduce__(self) -> Any:
        return np.dtype, ("V8", False, True), self.state


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize(
    "attack",
    [
        # An array of objects over the file's own bytes: its elements are pointers that the file chose.
        _Call(np.ndarray, (1,), "O", b"A" * 8),
        _Call(np.ndarray, (1 << 40,), "f8"),
        _Call(np.dtype, {"names": ["a"], "formats": ["O"], "offsets": [4]}),
        _State(3, "|", None, ("a",), {"a": (np.dtype("O"), 1 << 20)}, 8, 1, 0),
    ],
    ids=["pointers", "huge", "overlapping fields", "fields beyond the item"],
)
def test_a_pickle_makes_no_array_over_memory_of_its_choice(attack: Any, protocol: int, tmp_path: Path) -> None:
    path = with_pickle(tmp_path / "a.npy", pickle.dumps(attack, protocol=protocol))
    with pytest.raises(DataError, match="cannot be read safely"):
        read_object_array(path)


def test_an_array_whose_bytes_do_not_fill_its_shape_is_refused(tmp_path: Path) -> None:
    whole = save(tmp_path / "a.npy", {"a": np.arange(3.0)}).read_bytes()
    assert whole.count(b"K\x03\x85") == 1  # the shape (3,)
    (tmp_path / "a.npy").write_bytes(whole.replace(b"K\x03\x85", b"K\x30\x85"))
    with pytest.raises(DataError, match="cannot be read safely"):
        read_object_array(tmp_path / "a.npy")


def test_lists_that_hold_themselves_are_refused(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DataError, match="cannot be read safely"):
        read_object_array(with_pickle(tmp_path / "a.npy", pickle.dumps(endless)))


@settings(deadline=None, max_examples=200)
@given(cut=st.integers(1, 500))
def test_a_file_cut_short_is_a_data_error(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = save(tmp_path_factory.mktemp("d") / "a.npy", {"a": np.arange(3.0), "b": ["x"]})
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 1 - cut % (len(data) - 1)])
    with pytest.raises(DataError, match="cannot be read safely"):
        read_object_array(path)


@settings(deadline=None, max_examples=200)
@given(place=st.integers(0, 500), value=st.integers(0, 255))
def test_a_damaged_byte_raises_nothing_but_a_data_error(
    place: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = save(tmp_path_factory.mktemp("d") / "a.npy", {"a": np.arange(3.0), "b": ["x"]})
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(data)
    with contextlib.suppress(DataError):
        read_object_array(path)


def test_one_list_that_lists_name_many_times_is_not_written_out(tmp_path: Path) -> None:
    """Each of 25 lists holds the one before four times: 4^25 values in a kilobyte."""
    value: list[Any] = []
    for _ in range(25):
        value = [value] * 4
    with pytest.raises(DataError, match="more than its bytes can say"):
        read_object_array(save(tmp_path / "a.npy", {"lists": value}))


def test_an_array_that_is_named_many_times_is_made_once(tmp_path: Path) -> None:
    one = np.arange(100_000.0)
    found = read_object_array(save(tmp_path / "a.npy", {"many": [one] * 1000}))
    assert len({id(array) for array in found["many"]}) == 1
    assert np.array_equal(found["many"][999], one)


def test_an_object_with_a_large_number_takes_no_table_of_that_length(tmp_path: Path) -> None:
    """`r` keeps the last object under a number of four bytes, for later."""
    path = with_pickle(tmp_path / "a.npy", b"\x80\x02]r\xff\xff\xff\x0f.")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_object_array(path) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kB"
