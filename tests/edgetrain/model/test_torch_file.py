"""Claims about reading PyTorch's files without PyTorch: what is written comes back, and nothing else happens."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.errors import ModelError
from edgetrain.model.torch_file import read_torch_state

MAGIC = 0x1950A86A20F9469CFC6C


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(key: str, size: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """The opcodes PyTorch writes for one tensor: a call of its constructor on a storage named from outside."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + number(size) + b"NtQ"
    rest = number(offset) + numbers(shape) + numbers(strides) + b"\x89}"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR"


def state_file(entries: dict[str, bytes], storages: dict[str, np.ndarray[Any, Any]], magic: int = MAGIC) -> bytes:
    out = io.BytesIO()
    for header in (magic, 1001, {"little_endian": True}):
        pickle.dump(header, out, protocol=2)
    items = b"".join(text(name) + value for name, value in entries.items())
    out.write(b"\x80\x02ccollections\nOrderedDict\n)R(" + items + b"u.")
    pickle.dump(list(storages), out, protocol=2)
    for values in storages.values():
        out.write(struct.pack("<q", values.size) + values.astype("<f4").tobytes())
    return out.getvalue()


STORAGE = np.arange(12, dtype=np.float32)


def test_tensors_come_back_with_their_offsets_and_strides(tmp_path: Path) -> None:
    entries = {
        "plain": tensor("1", 12, 0, (3, 4), (4, 1)),
        "transposed": tensor("1", 12, 0, (4, 3), (1, 4)),
        "part": tensor("1", 12, 5, (2,), (1,)),
        "scalar": tensor("2", 1, 0, (), ()),
    }
    path = tmp_path / "a.pth"
    path.write_bytes(state_file(entries, {"1": STORAGE, "2": np.array([7.0], np.float32)}))
    state = read_torch_state(path)
    assert list(state) == list(entries)
    assert np.array_equal(state["plain"], STORAGE.reshape(3, 4))
    assert np.array_equal(state["transposed"], STORAGE.reshape(3, 4).T)
    assert np.array_equal(state["part"], [5, 6])
    assert state["scalar"].shape == ()
    assert float(state["scalar"]) == 7
    assert all(value.flags.c_contiguous for value in state.values())


@pytest.mark.parametrize("module", ["os\nsystem", "builtins\neval", "posix\nsystem", "collections\nCounter"])
def test_a_file_that_names_anything_else_is_refused_before_it_runs(tmp_path: Path, module: str) -> None:
    witness = tmp_path / "witness"
    call = f"c{module}\n(".encode() + text(f"touch {witness}") + b"tR"
    (tmp_path / "a.pth").write_bytes(state_file({"x": call}, {}))
    with pytest.raises(ModelError, match="has no place in a file of tensors"):
        read_torch_state(tmp_path / "a.pth")
    assert not witness.exists()


def test_the_attack_above_would_work_on_a_plain_unpickler(tmp_path: Path) -> None:
    """So that the refusal is the reader's doing, and not a mistake in the file."""
    witness = tmp_path / "witness"
    pickle.loads(b"\x80\x02c" + os.system.__module__.encode() + b"\nsystem\n(" + text(f"touch {witness}") + b"tR.")
    assert witness.exists()


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [(0, (13,), (1,)), (12, (1,), (1,)), (-1, (2,), (1,)), (0, (3, 4), (5, 1)), (4, (2,), (-1,)), (0, (2, 2), (1,))],
)
def test_a_tensor_that_reaches_outside_its_storage_is_refused(
    tmp_path: Path, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    (tmp_path / "a.pth").write_bytes(state_file({"x": tensor("1", 12, offset, shape, strides)}, {"1": STORAGE}))
    with pytest.raises(ModelError):
        read_torch_state(tmp_path / "a.pth")


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = state_file({"x": tensor("1", 12, 0, (3, 4), (4, 1))}, {"1": STORAGE})
    path = tmp_path / "a.pth"
    path.write_bytes(whole)
    assert read_torch_state(path)["x"].shape == (3, 4)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            read_torch_state(path)


@pytest.mark.parametrize("magic", [0, MAGIC + 1])
def test_another_magic_number_is_refused(tmp_path: Path, magic: int) -> None:
    (tmp_path / "a.pth").write_bytes(state_file({}, {}, magic))
    with pytest.raises(ModelError, match="magic number"):
        read_torch_state(tmp_path / "a.pth")


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_gives_tensors_or_a_model_error(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = bytearray(state_file({"x": tensor("1", 12, 0, (3, 4), (4, 1))}, {"1": STORAGE}))
    for place in rng.integers(0, len(whole), 3):
        whole[place] = rng.integers(0, 256)
    path = tmp_path / "a.pth"
    path.write_bytes(bytes(whole))
    try:
        state = read_torch_state(path)
    except ModelError:
        return
    assert all(isinstance(value, np.ndarray) for value in state.values())


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path: Path) -> None:
    """Steps of 0 show one value a billion times."""
    (tmp_path / "a.pth").write_bytes(state_file({"x": tensor("1", 12, 0, (1 << 30, 3), (0, 1))}, {"1": STORAGE}))
    with pytest.raises(ModelError, match="larger than its storage"):
        read_torch_state(tmp_path / "a.pth")


def test_a_few_bytes_cannot_ask_for_memory(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(pickle.BYTEARRAY8 + struct.pack("<Q", 1 << 28))
    tracemalloc.start()
    with pytest.raises(ModelError):
        read_torch_state(path)
    _now, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 1 << 24
