from __future__ import annotations

import struct
from pathlib import Path

import pytest

from edgetrain.errors import DataError
from edgetrain.program.image import loaded_bytes

_PT_LOAD, _PT_DYNAMIC = 1, 2


def _library(path: Path, segments: list[tuple[int, int, int, int]], *, bits: int = 64, order: str = "<") -> Path:
    """An ELF file of headers alone; each segment is (kind, address, bytes in the file, bytes in memory)."""
    word = "Q" if bits == 64 else "I"
    identity = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    sizes = {64: (64, 56), 32: (52, 32)}[bits]
    counts = (sizes[0], sizes[1], len(segments), 0, 0, 0)
    header = struct.pack(f"{order}HHI{word}{word}{word}IHHHHHH", 3, 62, 1, 0, sizes[0], 0, 0, *counts)
    table = b""
    for kind, address, in_file, in_memory in segments:
        if bits == 64:
            table += struct.pack(f"{order}IIQQQQQQ", kind, 5, 0, address, address, in_file, in_memory, 4096)
        else:
            table += struct.pack(f"{order}IIIIIIII", kind, 0, address, address, in_file, in_memory, 5, 4096)
    path.write_bytes(identity + header + table)
    return path


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_page_of_a_loaded_part_counts_and_nothing_else(bits: int, order: str, tmp_path: Path) -> None:
    parts = [(_PT_LOAD, 0, 100, 100), (_PT_LOAD, 8190, 4, 9000), (_PT_DYNAMIC, 0, 1 << 20, 1 << 20)]
    library = _library(tmp_path / "l.so", parts, bits=bits, order=order)
    assert loaded_bytes(library, is_paging=False) == (1 + 2) * 4096
    assert loaded_bytes(library, is_paging=True) == (1 + 4) * 4096  # bytes 8190 to 17190 touch four pages


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"MZ" + bytes(100), b"\x7fELF\x02\x01" + bytes(10)])
def test_another_file_is_no_library(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "l.so"
    path.write_bytes(content)
    with pytest.raises(DataError, match="is not a library"):
        loaded_bytes(path, is_paging=False)
