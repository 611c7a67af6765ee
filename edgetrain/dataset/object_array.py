"""Reads a `.npy` file that holds one pickled object made of arrays, lists, texts and numbers, and nothing else.

NumPy's own reader would run whatever code such a file names. NumPy's array types are no safer: called with a file's
arguments, they make arrays over any memory. So the file makes records here, and arrays are built of their checked type,
shape and bytes.
"""

from __future__ import annotations

import math
import pickle
import re
import struct
import tokenize
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.samples import Array
from edgetrain.errors import DataError

_MOST_DEPTH = 32  # lists within lists
_TYPES = re.compile(r"[biuf][1248]|f16|c(8|16)|[SU][0-9]{1,6}")
_OBJECTS = re.compile(r"O8?")


def _encode(text: str, encoding: str) -> bytes:
    """How pickles of Python 2 write bytes. `codecs.encode` would accept names of codecs that do more than encode."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are encoded as `{encoding}`")
    return text.encode("latin-1")


class _TypeRecord:
    """What a file says of an array's type: `numpy.dtype` and its state."""

    def __init__(self, code: object, align: object = False, copy: object = False) -> None:
        if not isinstance(code, str) or not (_TYPES.fullmatch(code) or _OBJECTS.fullmatch(code)):
            raise pickle.UnpicklingError(f"`{str(code)[:20]}` is no type of numbers, texts or objects")
        self.code = code
        self.order = "|"

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError("a type has an unknown state")
        if any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("a type has fields or a shape of its own")
        self.order = state[1]

    @property
    def holds_objects(self) -> bool:
        return _OBJECTS.fullmatch(self.code) is not None

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order.replace("|", "=") + self.code)


class _ArrayRecord:
    """What a file says of an array. The array is built when all of the file is read."""

    def __init__(self) -> None:
        self.state: tuple[tuple[int, ...], _TypeRecord, bool, object] | None = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array has an unknown state")
        _, shape, kind, is_column_major, content = state
        if not isinstance(kind, _TypeRecord):
            raise pickle.UnpicklingError("an array has no type")
        if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise pickle.UnpicklingError("an array has no shape")
        self.state = (shape, kind, bool(is_column_major), content)


class _ArrayName:
    """Stands for `numpy.ndarray` where a file names it: it can be passed on, and not be called."""


_ARRAY = _ArrayName()


def _reconstruct(kind: object, shape: object, code: object) -> _ArrayRecord:
    if kind is not _ARRAY:
        raise pickle.UnpicklingError("an array begins in an unknown way")
    return _ArrayRecord()


_ALLOWED: Mapping[tuple[str, str], Callable[..., Any] | _ArrayName] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ARRAY,
    ("numpy", "dtype"): _TypeRecord,
    ("_codecs", "encode"): _encode,
}


def _give_state(reader: Any) -> None:
    """Only records take a state: else a file could set attributes of what it names, which outlives the file."""
    if not isinstance(reader.stack[-2], _TypeRecord | _ArrayRecord):
        raise pickle.UnpicklingError("something else than an array has a state")
    pickle._Unpickler.dispatch[pickle.BUILD[0]](reader)


class _Reader(pickle._Unpickler):
    """In Python: the quicker one of C makes a table as long as the largest number that the file gives an object."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"`{module_name}.{global_name}` has no place in a file of arrays") from None

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: _give_state}  # noqa: RUF012 - as in its base class
    del dispatch[pickle.BYTEARRAY8[0]]  # no array is made of one, and memory is taken before there are any bytes


# What damaged bytes raise: NumPy parses its header as Python source, and a pickle can do anything wrong.
_BROKEN = (
    OSError,
    EOFError,
    struct.error,
    AssertionError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    MemoryError,
    OverflowError,
    RecursionError,
    SyntaxError,
    SystemError,  # NumPy's own `__setstate__`, for some damage
    tokenize.TokenError,
    pickle.UnpicklingError,
)


def read_object_array(path: Path) -> Any:
    """The object in the file. Raises `DataError` for a damaged file, or a pickle that names anything but arrays."""
    try:
        with path.open("rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError("it is of another version of the format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            if shape != () or not dtype.hasobject:
                raise ValueError("it holds a plain array, not an object")
            value = _Builder(most_values=path.stat().st_size).build(_Reader(file).load())
    except _BROKEN as error:
        raise DataError(
            f"{path} cannot be read safely as an object of arrays",
            why=str(error) or type(error).__name__,
            fix="install the package again, or store the data as .npz",
        ) from error
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


class _Builder:
    """Makes values of records. A value takes a byte of its file, or more: lists that hold one list many times, and are
    held many times themselves, would be more values than any memory holds."""

    def __init__(self, *, most_values: int) -> None:
        self._left = most_values
        self._arrays: dict[int, Array] = {}  # by their record, which may be named many times

    def build(self, value: object, depth: int = 0) -> Any:
        """The value with arrays in the place of their records."""
        self._left -= 1
        if depth > _MOST_DEPTH or self._left < 0:
            raise ValueError(f"it is nested deeper than {_MOST_DEPTH}, or holds more than its bytes can say")
        match value:
            case _ArrayRecord():
                if id(value) not in self._arrays:
                    self._arrays[id(value)] = _array(value, lambda item: self.build(item, depth + 1))
                return self._arrays[id(value)]
            case list() | tuple():
                return type(value)(self.build(item, depth + 1) for item in value)
            case dict():
                return {self.build(key, depth + 1): self.build(item, depth + 1) for key, item in value.items()}
            case None | bool() | int() | float() | complex() | str() | bytes():
                return value
        raise ValueError(f"it holds a `{type(value).__name__}`")


def _array(record: _ArrayRecord, build: Callable[[object], Any]) -> Array:
    if record.state is None:
        raise ValueError("an array has no content")
    shape, kind, is_column_major, content = record.state
    order: Any = "F" if is_column_major else "C"
    if kind.holds_objects:
        if not isinstance(content, list) or len(content) != math.prod(shape):
            raise ValueError("an array of objects has another number of them than its shape says")
        objects = np.empty(len(content), dtype=object)
        for index, item in enumerate(content):
            objects[index] = build(item)
        return objects.reshape(shape, order=order)
    if not isinstance(content, bytes):
        raise ValueError("an array's content is no bytes")
    return np.frombuffer(content, kind.dtype()).reshape(shape, order=order).copy()
