"""Where a program leaves some parameters in storage: a copy of them all, which the host can read and write.

It is a file in the page directory, mapped. What was read or written goes back to the system piece by piece: beside
the copy's piece a stored tensor is in memory once, in place of temporaries that are not in use meanwhile.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgetrain.errors import DeviceError
from edgetrain.program.manifest import Manifest, TensorRecord

_PIECE_BYTES = 1 << 16  # small beside any arena: it is held on top of one

MoveSlot = Callable[[int, int], None]  # slot, address in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounce:
    """Memory on a page's start with room for every stored tensor, through which tensors come and go.

    Where it begins on a page, a transfer needs no buffer of the pager's.
    """

    memory: memoryview
    address: int


class ParametersCopy:
    """A copy of every parameter, state and constant, laid out as in `parameters.bin`.

    `is_current` says that it holds what the program has. The owner fetches before showing it, and puts it back before
    the program runs, for what was shown may have been changed.
    """

    def __init__(self, manifest: Manifest, directory: Path) -> None:
        """Raises `DeviceError` when the directory does not take the file."""
        self.mapping = mapped_file(directory, manifest.parameters_bytes)
        self.memory = memoryview(self.mapping)
        self.is_current = False
        self._records = {name: t for name, t in manifest.tensors.items() if t.file_offset is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def tensor(self, name: str) -> npt.NDArray[Any]:
        record = self._records[name]
        return np.frombuffer(self.memory[record.place_in_file], dtype=record.dtype).reshape(record.shape)

    def fetch(self, arena: memoryview, read_slot: MoveSlot, bounce: Bounce) -> None:
        """Fills the copy from the arena and from storage."""
        for record in self._records.values():
            if record.slot is not None:
                read_slot(record.slot, bounce.address)
            held = bounce.memory[: record.nbytes] if record.slot is not None else arena[_place_in_arena(record)]
            copy_by_pieces(self.memory[record.place_in_file], held, self.mapping)
        self.is_current = True

    def put_back(self, arena: memoryview, write_slot: MoveSlot, bounce: Bounce) -> None:
        """Writes the copy to the arena and to storage; it is out of date from then on, for the program runs next."""
        for record in self._records.values():
            held = bounce.memory[: record.nbytes] if record.slot is not None else arena[_place_in_arena(record)]
            copy_by_pieces(held, self.memory[record.place_in_file], self.mapping)
            if record.slot is not None:
                write_slot(record.slot, bounce.address)
        self.is_current = False

    def release(self) -> None:
        """Gives the memory back to the system; what was changed is in the file all the same."""
        release(self.mapping)


def _place_in_arena(record: TensorRecord) -> slice:
    assert record.offset is not None  # it has no slot
    return slice(record.offset, record.offset + record.nbytes)


def copy_by_pieces(target: memoryview, source: memoryview, mapping: mmap.mmap) -> None:
    """Copies all bytes, of which one side is mapped, without holding more than a piece of that side in memory."""
    for start in range(0, len(target), _PIECE_BYTES):
        target[start : start + _PIECE_BYTES] = source[start : start + _PIECE_BYTES]
        release(mapping)


def release(mapping: mmap.mmap) -> None:
    """The mapped file's pages leave the process; the file keeps what they hold."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def mapped_file(directory: Path, nbytes: int) -> mmap.mmap:
    """A file without a name, mapped: the system may take its memory back whenever it is short.

    Raises `DeviceError` when the directory does not take it.
    """
    try:
        with tempfile.TemporaryFile(dir=directory, prefix="edgetrain-parameters-") as file:
            file.truncate(nbytes)
            mapping = mmap.mmap(file.fileno(), nbytes)
    except OSError as error:
        raise DeviceError(
            f"no room for a copy of the parameters in {directory}",
            why=str(error),
            fix="free space in the page directory, or choose another one",
        ) from error
    # Else the system reads ahead, in pages of up to 2 MB, and maps each of them whole at the first touch.
    if hasattr(mmap, "MADV_RANDOM"):
        mapping.madvise(mmap.MADV_RANDOM)
    return mapping
