"""Reads a `.npy` file that holds one pickled object made of arrays, lists, texts and numbers, and nothing else.

NumPy's own reader would run whatever code such a file names. This one knows the four names that arrays need.
"""

from __future__ import annotations

import pickle
import tokenize
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.errors import DataError


def _encode(text: str, encoding: str) -> bytes:
    """How pickles of Python 2 write bytes. `codecs.encode` would accept names of codecs that do more than encode."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are encoded as `{encoding}`")
    return text.encode("latin-1")


def _reconstruct(kind: type, shape: tuple[int, ...], dtype: bytes) -> np.ndarray[Any, Any]:
    if kind is not np.ndarray or shape != (0,):
        raise pickle.UnpicklingError("an array begins in an unknown way")
    return np.ndarray(shape, np.dtype(dtype.decode("ascii")))


_ALLOWED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"`{module_name}.{global_name}` has no place in a file of arrays") from None


# What damaged bytes raise: NumPy parses its header as Python source, and a pickle can do anything wrong.
_BROKEN = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    MemoryError,
    OverflowError,
    SyntaxError,
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
            value = _Reader(file).load()
    except _BROKEN as error:
        raise DataError(
            f"{path} cannot be read safely as an object of arrays",
            why=str(error) or type(error).__name__,
            fix="install the package again, or store the data as .npz",
        ) from error
    return value.item() if isinstance(value, np.ndarray) else value
