"""Entries as lines: how caches travel in files. Bad lines are named and passed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgetrain_tuner.cache.entry import MOST_BYTES, Entry, read_entry
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.whole_file import replaced_file


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """`line` counts from 1."""

    line: int
    why: str


def write_lines(path: Path, entries: Iterable[Entry]) -> int:
    """One line for each entry; the file appears whole, or not at all. Returns how many there are."""
    count = 0
    with replaced_file(path, mode=0o644) as stream:
        for entry in entries:
            stream.write(entry.text.encode() + b"\n")
            count += 1
    return count


def read_lines(path: Path) -> Iterator[tuple[int, Entry | BadLine]]:
    """Every line's number and its entry, or what is wrong with it. No line takes more memory than a good one."""
    with path.open("rb") as stream:
        number = 0
        while raw := stream.readline(MOST_BYTES + 2):
            number += 1
            if len(raw) > MOST_BYTES + 1 or (len(raw) > MOST_BYTES and not raw.endswith(b"\n")):
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(1 << 16)
                yield number, BadLine(line=number, why=f"it is longer than {MOST_BYTES} bytes")
                continue
            if not raw.strip():
                continue
            try:
                yield number, read_entry(raw.rstrip(b"\r\n"))
            except CacheError as error:
                cut = "" if raw.endswith(b"\n") else " (the file ends inside it)"
                yield number, BadLine(line=number, why=(error.why or error.what) + cut)
