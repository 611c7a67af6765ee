"""Claims about reading safetensors files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import ModelError
from edgetrain.model.safetensors_file import read_safetensors

NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int8": "I8",
    "uint8": "U8",
}


def write_safetensors(path: Path, tensors: dict[str, np.ndarray[Any, Any]], **changes: Any) -> Path:
    """By the format's description: the header's length in eight bytes, the header, the bytes in order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, value in tensors.items():
        offsets = [len(data), len(data) + value.nbytes]
        header[name] = {
            "dtype": NAMES[str(value.dtype)],
            "shape": list(value.shape),
            "data_offsets": offsets,
            **changes,
        }
        data += value.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize("dtype", sorted(NAMES))
def test_tensors_come_back(dtype: str, tmp_path: Path) -> None:
    tensors = {"a": np.arange(6).reshape(2, 3).astype(dtype), "b.c": np.zeros((), dtype), "d": np.ones(5, dtype)}
    found = read_safetensors(write_safetensors(tmp_path / "a", tensors))
    assert list(found) == list(tensors)
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert np.array_equal(found[name], value)


@pytest.mark.parametrize(
    "changes",
    [{"dtype": "BF8"}, {"shape": [7]}, {"data_offsets": [0, 10**6]}, {"data_offsets": [-4, 0]}, {"shape": "x"}],
)
def test_a_header_that_does_not_fit_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "a", {"a": np.zeros(2, np.float32)}, **changes)
    with pytest.raises(ModelError, match="not a safetensors file"):
        read_safetensors(path)


@settings(deadline=None)
@given(length=st.integers(0, 150))
def test_a_file_cut_short_is_refused(length: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = write_safetensors(tmp_path_factory.mktemp("s") / "a", {"a": np.zeros(9, np.float32)})
    whole = path.read_bytes()
    path.write_bytes(whole[: min(length, len(whole) - 1)])
    with pytest.raises(ModelError, match="not a safetensors file"):
        read_safetensors(path)
