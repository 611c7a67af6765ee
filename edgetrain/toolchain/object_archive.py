"""Objects in one file with an index of what each defines, in the format of `ar`. Same inputs, same bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgetrain.errors import DataError

SUFFIX = ".a"
_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60
_INDEX = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An object and the one symbol that others link to."""

    symbol: str
    content: bytes


def write_archive(path: Path, members: Sequence[Member]) -> None:
    """Members are named `k0.o`, `k1.o`, … in their order. No dates, no owners."""
    names = b"".join(member.symbol.encode() + b"\0" for member in members)
    index_bytes = 4 + 4 * len(members) + len(names)
    offsets, place = [], len(_MAGIC) + _HEADER_BYTES + _padded(index_bytes)
    for member in members:
        offsets.append(place)
        place += _HEADER_BYTES + _padded(len(member.content))
    index = struct.pack(f">{len(members) + 1}I", len(members), *offsets) + names
    parts = [_MAGIC, _header(_INDEX, len(index)), index, _padding(len(index))]
    for number, member in enumerate(members):
        size = len(member.content)
        parts += [_header(f"k{number}.o/", size), member.content, _padding(size)]
    path.write_bytes(b"".join(parts))


def read_archive(path: Path) -> list[tuple[str, bytes]]:
    """The objects of an archive that `write_archive` wrote, by their names. Raises `DataError` for anything else."""
    data = path.read_bytes()
    if not data.startswith(_MAGIC):
        raise DataError(f"`{path}` is not an archive of objects")
    found, place = [], len(_MAGIC)
    while place < len(data):
        header = data[place : place + _HEADER_BYTES]
        if len(header) < _HEADER_BYTES or header[58:] != b"`\n":
            raise DataError(f"`{path}` is damaged", why=f"there is no member at byte {place}")
        name, size = header[:16].decode().rstrip(), int(header[48:58])
        start = place + _HEADER_BYTES
        if name != _INDEX:
            found.append((name.removesuffix("/"), data[start : start + size]))
        place = start + _padded(size)
    return found


def _header(name: str, size: int) -> bytes:
    """Name, date, owner, group, mode, size: all but name and size are the same for everyone."""
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{size:<10}`\n".encode()


def _padded(size: int) -> int:
    return size + size % 2


def _padding(size: int) -> bytes:
    return b"\n" * (size % 2)
