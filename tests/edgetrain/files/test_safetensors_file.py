"""Claims about safetensors files: what the library reads and writes, against the format's description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgetrain.errors import ModelError
from edgetrain.files.safetensors_file import Array, read_safetensors, write_safetensors

NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int8": "I8",
    "uint8": "U8",
}


def spell_out(path: Path, tensors: dict[str, Array], **changes: Any) -> Path:
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
    found = read_safetensors(spell_out(tmp_path / "a", tensors))
    assert list(found) == list(tensors)
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert np.array_equal(found[name], value)


@pytest.mark.parametrize(
    "changes",
    [{"dtype": "BF8"}, {"shape": [7]}, {"data_offsets": [0, 10**6]}, {"data_offsets": [-4, 0]}, {"shape": "x"}],
)
def test_a_header_that_does_not_fit_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = spell_out(tmp_path / "a", {"a": np.zeros(2, np.float32)}, **changes)
    with pytest.raises(ModelError, match="not a safetensors file"):
        read_safetensors(path)


@settings(deadline=None)
@given(length=st.integers(0, 150))
def test_a_file_cut_short_is_refused(length: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = spell_out(tmp_path_factory.mktemp("s") / "a", {"a": np.zeros(9, np.float32)})
    whole = path.read_bytes()
    path.write_bytes(whole[: min(length, len(whole) - 1)])
    with pytest.raises(ModelError, match="not a safetensors file"):
        read_safetensors(path)


def read_by_description(content: bytes) -> dict[str, Array]:
    """Sharing nothing with the writer."""
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    values = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        kind = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[entry["dtype"]]
        values[name] = np.frombuffer(content[8 + length + start : 8 + length + end], kind).reshape(entry["shape"])
    assert max(e["data_offsets"][1] for e in header.values()) == len(content) - 8 - length
    return values


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_what_is_written_has_the_values(dtype: str, tmp_path: Path) -> None:
    normal = np.random.default_rng(0).standard_normal((2, 3))
    tensors = {"a": normal.astype(dtype), "b.ü": np.zeros((0, 4), dtype), "c": np.ones((), dtype)}
    write_safetensors(tmp_path / "a", tensors)
    found = read_by_description((tmp_path / "a").read_bytes())
    assert set(found) == set(tensors)
    for name, value in tensors.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_transposed_view_is_written_as_its_values_not_its_memory(tmp_path: Path) -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3).T
    write_safetensors(tmp_path / "a", {"t": value})
    np.testing.assert_array_equal(read_by_description((tmp_path / "a").read_bytes())["t"], value)


def test_equal_tensors_give_equal_bytes_whatever_their_order(tmp_path: Path) -> None:
    tensors = {name: np.full(3, i, np.float32) for i, name in enumerate("cab")}
    write_safetensors(tmp_path / "a", tensors)
    write_safetensors(tmp_path / "b", dict(sorted(tensors.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_type_that_numpy_borrows_is_written_too(tmp_path: Path) -> None:
    half = np.asarray(numpy_helper.to_array(helper.make_tensor("h", TensorProto.BFLOAT16, [2], [1.0, 0.5])))
    write_safetensors(tmp_path / "a", {"h": half})
    content = (tmp_path / "a").read_bytes()
    assert b'"dtype":"BF16"' in content
    assert content[-4:] == bytes.fromhex("803f003f")
