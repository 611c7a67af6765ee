"""The copy of parameters that a program stores: all bytes come and go, and hardly any of them is in memory."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import pytest

from edgetrain.graph.ir import Role
from edgetrain.program.manifest import Manifest, TensorRecord
from edgetrain.run.engines import stored_parameters
from edgetrain.run.engines.arena_memory import _mapped_bytes_in_use
from edgetrain.run.engines.stored_parameters import Bounce, ParametersCopy

STORED, KEPT = 4 << 20, 3 << 20
MOST_BYTES = 128 << 10


def record(*, nbytes: int, file_offset: int, slot: int | None) -> TensorRecord:
    shape, place = (nbytes // 4,), (0 if slot is None else None)
    return TensorRecord(
        offset=place, shape=shape, dtype="float32", role=Role.PARAMETER, file_offset=file_offset, slot=slot
    )


@pytest.fixture
def copy(tmp_path: Path) -> ParametersCopy:
    """Of a tensor in storage and of one in the arena."""
    manifest = object.__new__(Manifest)
    tensors = {
        "stored": record(nbytes=STORED, file_offset=0, slot=0),
        "kept": record(nbytes=KEPT, file_offset=STORED, slot=None),
    }
    object.__setattr__(manifest, "tensors", tensors)
    object.__setattr__(manifest, "parameters_bytes", STORED + KEPT)
    return ParametersCopy(manifest, tmp_path)


def test_what_comes_and_goes_is_in_memory_piece_by_piece(copy: ParametersCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece beside the tensor's place among the temporaries: two copies of a large tensor exceed the budget."""
    address = np.frombuffer(copy.memory, dtype=np.uint8).ctypes.data
    most, release = 0, stored_parameters.release

    def counted(mapping: mmap.mmap) -> None:
        nonlocal most
        most = max(most, _mapped_bytes_in_use(address))
        release(mapping)

    monkeypatch.setattr(stored_parameters, "release", counted)
    storage = np.random.Generator(np.random.PCG64(0)).integers(0, 256, STORED, np.uint8).tobytes()
    arena = bytearray(b"\x07" * KEPT)
    cells = (ctypes.c_uint8 * STORED)()
    bounce = Bounce(memory=memoryview(cells).cast("B"), address=ctypes.addressof(cells))
    written: list[bytes] = []

    def read(slot: int, to: int) -> None:
        ctypes.memmove(to, storage, STORED)

    copy.fetch(memoryview(arena), read, bounce)
    assert bytes(copy.memory[:STORED]) == storage
    assert bytes(copy.memory[STORED:]) == arena
    release(copy.mapping)  # what the comparison has read
    arena[:] = bytes(KEPT)
    copy.put_back(memoryview(arena), lambda slot, at: written.append(ctypes.string_at(at, STORED)), bounce)
    assert written == [storage]
    assert arena == b"\x07" * KEPT
    assert 0 < most <= MOST_BYTES
