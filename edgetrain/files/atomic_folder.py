"""Directories that are either whole or not there: written beside their place, synced, renamed into it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch_directory(place: Path) -> Iterator[Path]:
    """An empty directory on the same filesystem as `place`. Whatever is still there at the end is removed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def move_into_place(source: Path, place: Path) -> None:
    """Renames the directory `source` to `place` once its bytes are on the disk.

    Raises `OSError` (`ENOTEMPTY` or `EEXIST`) when `place` holds something: then nothing has changed.
    """
    for path in sorted(source.rglob("*")):
        _sync(path)
    _sync(source)
    source.rename(place)
    _sync(place.parent)


def move_aside(place: Path) -> None:
    """Removes the directory `place` such that no reader meets a half-removed one."""
    with scratch_directory(place) as grave:
        place.rename(grave / place.name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
