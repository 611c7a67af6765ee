"""Changes that know a format: JSON stays JSON, an archive stays an archive, and check sums fit again."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.harness import Change

# Values at the ends of what JSON can say: some are too large for a float, some for 64 bits, some for neither.
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, -(2**63), 2**64, 10**20, 10**400, -(10**400), 0.5, -0.0, 1e308,
    1e-320, float("inf"), float("-inf"), float("nan"), "", "a", "\x00", "\ud800", "é", "../..", "/dev/null", "none",
    "1e999", [], {}, [[]], [{}], {"": None}, [0, 1], ["a"], [None],
)  # fmt: skip
_MOST_MEMBER_BYTES = 1 << 16


def mutate_json(data: bytes, random: Random, change: Change) -> bytes:
    """JSON with values replaced, removed, repeated or swapped; other bytes now and then, and for what is no JSON."""
    if random.random() < 0.15:
        return change(data)
    try:
        value = json.loads(data)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            value = _changed(value, random, change)
        return json.dumps(value, indent=random.choice((None, 1))).encode()
    except (ValueError, RecursionError):
        return change(data)


def _changed(value: Any, random: Random, change: Change) -> Any:
    places = list(_places(value))
    if not places or random.random() < 0.02:
        return random.choice(_VALUES)
    holder, key = random.choice(places)
    match random.randrange(8):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 2:
            other, place = random.choice(places)
            holder[key] = json.loads(json.dumps(other[place]))  # a copy: nothing may hold itself
        case 3 if isinstance(holder[key], str):
            holder[key] = change(holder[key].encode(errors="replace")).decode("utf-8", "replace")
        case 4 if isinstance(holder, dict):
            holder[change(str(key).encode(errors="replace")).decode("utf-8", "replace")] = holder.pop(key)
        case 5 if isinstance(holder[key], int | float) and abs(holder[key]) < 2**62:
            holder[key] += random.choice((-1, 1, 16, -4096))
        case _:
            holder[key] = random.choice(_VALUES)
    return value


def _places(value: Any) -> Any:
    """Every (container, key) in the value."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def mutate_lines(data: bytes, random: Random, change: Change, one: Callable[[bytes, Random, Change], bytes]) -> bytes:
    """Lines, one of them changed by `one`, removed, repeated or moved."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(random.randrange(len(lines)), lines[at])
        case 2:
            return change(data)
        case _:
            lines[at] = one(lines[at], random, change).replace(b"\n", b" ")
    return b"\n".join(lines)


def mutate_zip(data: bytes, random: Random, change: Change) -> bytes:
    """An archive with one member changed, renamed, removed or packed otherwise; now and then its own bytes."""
    if random.random() < 0.25:
        return change(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [
                (info.filename, info.compress_type, archive.read(info))
                for info in archive.infolist()
                if info.file_size <= _MOST_MEMBER_BYTES
            ]
    except Exception:  # whatever is wrong with a broken archive
        return change(data)
    if not members:
        return change(data)
    at = random.randrange(len(members))
    name, packing, content = members[at]
    match random.randrange(6):
        case 0:
            packing = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        case 1:
            name = random.choice(("x.npy", "y.npy", "x_train.npy", "y_train.npy", "x_test.npy", "x.a.npy", "x.", "z"))
        case 2:
            content = b""
        case 3:
            members.append((name, packing, change(content)))
        case _:
            content = change(content)
    members[at] = (name, packing, content)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, packing, content in members:
            archive.writestr(name, content, compress_type=packing)
    return out.getvalue()


_PNG = b"\x89PNG\r\n\x1a\n"
_CHUNKS = (
    b"IHDR",
    b"PLTE",
    b"IDAT",
    b"IEND",
    b"tRNS",
    b"gAMA",
    b"eXIf",
    b"iCCP",
    b"tEXt",
    b"zTXt",
    b"acTL",
    b"fcTL",
    b"fdAT",
)


def mutate_png(data: bytes, random: Random, change: Change) -> bytes:
    """A PNG with one chunk changed, repeated, renamed or removed, and its check sum made again; else other bytes."""
    if not data.startswith(_PNG) or random.random() < 0.2:
        return change(data)
    chunks = _png_chunks(data)
    if not chunks:
        return change(data)
    at = random.randrange(len(chunks))
    kind, content = chunks[at]
    match random.randrange(7):
        case 0:
            chunks.insert(random.randrange(len(chunks) + 1), (kind, content))
        case 1:
            del chunks[at]
        case 2:
            chunks[at] = (random.choice(_CHUNKS), content)
        case 3 if kind == b"IDAT":
            chunks[at] = (kind, _repacked(content, change))
        case _:
            chunks[at] = (kind, change(content))
    return _PNG + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def _png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    chunks: list[tuple[bytes, bytes]] = []
    at = len(_PNG)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return chunks


def _repacked(content: bytes, change: Change) -> bytes:
    try:
        return zlib.compress(change(zlib.decompressobj().decompress(content, _MOST_MEMBER_BYTES)))
    except zlib.error:
        return change(content)
