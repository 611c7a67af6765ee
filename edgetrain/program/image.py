"""How much memory a compiled library takes when it is loaded, read from its ELF program headers."""

from __future__ import annotations

import struct
from pathlib import Path

from edgetrain.errors import DataError

_MAGIC = b"\x7fELF"
_PT_LOAD = 1
_PAGE_BYTES = 4096
_PAGER_BYTES = 2 * _PAGE_BYTES  # its buffer may begin inside of a page
# By EI_CLASS, 32 and 64 bits: the format of an address, and where e_phoff, e_phentsize, p_vaddr, p_filesz and
# p_memsz stand.
_LAYOUTS = {
    1: ("I", 28, 42, 8, 16, 20),
    2: ("Q", 32, 54, 16, 32, 40),
}
_BYTE_ORDERS = {1: "<", 2: ">"}


def loaded_bytes(library: Path, *, is_paging: bool) -> int:
    """Code, constants and variables of the library, in whole pages: what a process grows by when it runs all of it.

    Variables that begin as zero take memory only once they are written. The pager's buffer is nearly all of them. What
    it takes are the ends of tensors, which do not fill a page. Raises `DataError` for a file that is no ELF library.
    """
    content = library.read_bytes()
    try:
        in_use = sum(_pages(address, in_file) for address, in_file, _ in _segments(content))
    except (struct.error, KeyError, IndexError) as error:
        why = "it is not in the ELF format"
        raise DataError(f"{library} is not a library", why=why, fix="build the program again") from error
    return in_use + (_PAGER_BYTES if is_paging else 0)


def _segments(content: bytes) -> list[tuple[int, int, int]]:
    """(address, bytes in the file, bytes in memory) of every part that is loaded."""
    if content[:4] != _MAGIC:
        raise struct.error("no ELF magic")
    order = _BYTE_ORDERS[content[5]]
    word, table_at, counts_at, *fields = _LAYOUTS[content[4]]
    (table,) = struct.unpack_from(order + word, content, table_at)
    entry_bytes, count = struct.unpack_from(order + "HH", content, counts_at)
    found = []
    for start in range(table, table + entry_bytes * count, entry_bytes):
        (kind,) = struct.unpack_from(order + "I", content, start)
        if kind == _PT_LOAD:
            address, in_file, in_memory = (struct.unpack_from(order + word, content, start + at)[0] for at in fields)
            found.append((address, in_file, in_memory))
    return found


def _pages(address: int, size: int) -> int:
    """Bytes of the pages that the range touches."""
    return (-(-(address + size) // _PAGE_BYTES) - address // _PAGE_BYTES) * _PAGE_BYTES
