"""Reads safetensors files: a length, a JSON header, and the tensors' bytes. Mapped, not read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.errors import ModelError

_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000  # the format's own limit
_DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}


def read_safetensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors by name. Raises `ModelError` for another format, a file cut short, or a type NumPy lacks."""
    try:
        data = np.memmap(path, mode="r", dtype=np.uint8)
        (length,) = np.frombuffer(data[:_LENGTH_BYTES].tobytes(), "<u8")
        if not 0 < length <= min(len(data) - _LENGTH_BYTES, _MOST_HEADER_BYTES):
            raise ValueError(f"its header would have {length} bytes")
        start = _LENGTH_BYTES + int(length)
        header = json.loads(data[_LENGTH_BYTES:start].tobytes())
        return {n: _view(data[start:], entry) for n, entry in header.items() if n != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path} is not a safetensors file that can be read",
            why=str(error) or type(error).__name__,
            fix="install the package again, or export the model to ONNX and use that file",
        ) from error


def _view(data: np.ndarray[Any, Any], entry: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    begin, end = entry["data_offsets"]
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"a tensor of shape {list(shape)} does not fit its place")
    return data[begin:end].view(dtype).reshape(shape)
