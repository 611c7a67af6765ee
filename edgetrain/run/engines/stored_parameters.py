"""Where a program leaves some parameters in storage: a copy of them all, which the host can read and write.

It is a file in the page directory, mapped: the system may write it back and take the memory whenever it is short, so it
is no part of the program's budget.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgetrain.errors import DeviceError
from edgetrain.program.manifest import Manifest, TensorRecord

MoveSlot = Callable[[int, int], None]  # slot, address in this process


class ParametersCopy:
    """A copy of every parameter, state and constant, laid out as in `parameters.bin`.

    `is_current` says that it holds what the program has. The owner fetches before showing it, and puts it back before
    the program runs, for what was shown may have been changed.
    """

    def __init__(self, manifest: Manifest, directory: Path) -> None:
        """Raises `DeviceError` when the directory does not take the file."""
        self._mapping = mapped_file(directory, manifest.parameters_bytes)
        self.memory = memoryview(self._mapping)
        self.is_current = False
        self._address = np.frombuffer(self._mapping, np.uint8).ctypes.data
        self._records = {name: t for name, t in manifest.tensors.items() if t.file_offset is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def tensor(self, name: str) -> npt.NDArray[Any]:
        record = self._records[name]
        return np.frombuffer(self.memory[record.place_in_file], dtype=record.dtype).reshape(record.shape)

    def fetch(self, arena: memoryview, read_slot: MoveSlot) -> None:
        """Fills the copy from the arena and from storage."""
        for record in self._records.values():
            if record.slot is not None:
                read_slot(record.slot, self._address_of(record))
            else:
                self.memory[record.place_in_file] = arena[_place_in_arena(record)]
        self.is_current = True

    def put_back(self, arena: memoryview, write_slot: MoveSlot) -> None:
        """Writes the copy to the arena and to storage; it is out of date from then on, for the program runs next."""
        for record in self._records.values():
            if record.slot is not None:
                write_slot(record.slot, self._address_of(record))
            else:
                arena[_place_in_arena(record)] = self.memory[record.place_in_file]
        self.is_current = False
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)  # what was changed is in the file's pages all the same

    def _address_of(self, record: TensorRecord) -> int:
        return int(self._address) + record.start_in_file


def _place_in_arena(record: TensorRecord) -> slice:
    assert record.offset is not None  # it has no slot
    return slice(record.offset, record.offset + record.nbytes)


def mapped_file(directory: Path, nbytes: int) -> mmap.mmap:
    """A file without a name, mapped: the system may take its memory back whenever it is short.

    Raises `DeviceError` when the directory does not take it.
    """
    try:
        with tempfile.TemporaryFile(dir=directory, prefix="edgetrain-parameters-") as file:
            file.truncate(nbytes)
            return mmap.mmap(file.fileno(), nbytes)
    except OSError as error:
        raise DeviceError(
            f"no room for a copy of the parameters in {directory}",
            why=str(error),
            fix="free space in the page directory, or choose another one",
        ) from error
