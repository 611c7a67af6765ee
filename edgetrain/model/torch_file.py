"""Reads the tensors of a PyTorch state file without PyTorch, and without running pickled code.

A pickle is a program. This reader runs it with four names only (a dict, two storage types, the tensor constructor)
and refuses every other, so that a file can describe tensors and do nothing else. It reads the layout PyTorch wrote
before 1.6: three pickles (magic number, protocol, system), the state, the list of storages, then their bytes.
"""

from __future__ import annotations

import math
import os
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgetrain.errors import ModelError
from edgetrain.files.regular_file import require_regular

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_LENGTH = struct.Struct("<q")

# A broken pickle can raise nearly anything while it is interpreted; each of these means: not such a file.
_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
    AssertionError,
    struct.error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StorageType:
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """A view on a storage whose bytes come later in the file. Offsets and strides count elements."""

    storage: str
    dtype: np.dtype[Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor(
    storage: tuple[str, np.dtype[Any]], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> _Tensor:
    key, dtype = storage
    return _Tensor(storage=key, dtype=dtype, offset=offset, shape=shape, strides=strides)


_ALLOWED: Mapping[tuple[str, str], Callable[..., Any] | _StorageType] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "FloatStorage"): _StorageType(dtype=np.dtype("<f4")),
    ("torch", "LongStorage"): _StorageType(dtype=np.dtype("<i8")),
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
}


class _Reader(pickle._Unpickler):
    """In Python: the quicker one of C makes a table as long as the largest number that the file gives an object.

    No tensor is made of a bytearray, for which memory is taken before there are any bytes.
    """

    dispatch = {  # noqa: RUF012 - as in its base class
        code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"`{module_name}.{global_name}` has no place in a file of tensors") from None

    def persistent_load(self, pid: Any, /) -> tuple[str, np.dtype[Any]]:
        kind, storage_type, key, _device, _elements, view = pid
        if kind != "storage" or not isinstance(storage_type, _StorageType) or view is not None:
            raise pickle.UnpicklingError(f"`{kind}` is not a storage this reader knows")
        return str(key), storage_type.dtype


def read_torch_state(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a state file by name, as contiguous arrays.

    Raises `ModelError` for another layout, a truncated file, or a pickle that names anything but tensors.
    """
    require_regular(path, ModelError)
    try:
        with path.open("rb") as file:
            return _read(file)
    except _BROKEN as error:
        raise ModelError(
            f"{path} is not a PyTorch state file that can be read safely",
            why=str(error) or type(error).__name__,
            fix="export the model to ONNX and use that file",
        ) from error


def _read(file: IO[bytes]) -> dict[str, np.ndarray[Any, Any]]:
    magic, protocol, _system = (_Reader(file).load() for _ in range(3))
    if (magic, protocol) != (_MAGIC, _PROTOCOL):
        raise ValueError("the file does not begin with PyTorch's magic number")
    state = _Reader(file).load()
    if not isinstance(state, dict) or not all(isinstance(value, _Tensor) for value in state.values()):
        raise ValueError("the file holds something else than named tensors")
    keys = _Reader(file).load()
    dtypes = {tensor.storage: tensor.dtype for tensor in state.values()}
    storages = {str(key): _read_storage(file, dtypes[str(key)]) for key in keys}
    return {str(name): _view(tensor, storages[tensor.storage]) for name, tensor in state.items()}


def _read_storage(file: IO[bytes], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    header = file.read(_LENGTH.size)
    if len(header) != _LENGTH.size:
        raise EOFError("the file ends before its last tensor")
    (elements,) = _LENGTH.unpack(header)
    # Compared before reading: a damaged length must not ask for memory that the file cannot fill.
    remaining = os.fstat(file.fileno()).st_size - file.tell()
    if not 0 <= elements * dtype.itemsize <= remaining:
        raise EOFError("the file ends before its last tensor")
    return np.frombuffer(file.read(elements * dtype.itemsize), dtype=dtype)


def _view(tensor: _Tensor, storage: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # Checked here because as_strided checks nothing and would read past the storage.
    last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    if min((tensor.offset, *tensor.shape, *tensor.strides), default=0) < 0 or last >= storage.size:
        raise ValueError("a tensor reaches past its storage")
    if math.prod(tensor.shape) > storage.size:  # by strides of 0
        raise ValueError("a tensor is larger than its storage")
    strides = tuple(step * storage.itemsize for step in tensor.strides)
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides).copy()
