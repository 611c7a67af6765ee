"""Directories that are either whole or not there: written beside their place, synced, renamed into it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edgetrain.files.private import make_private_folder
from edgetrain.files.scratch import owned_folder, sweep
from edgetrain_tuner import disk


@contextlib.contextmanager
def scratch_directory(place: Path) -> Iterator[Path]:
    """An empty directory on the same filesystem as `place`. Whatever is still there at the end is removed."""
    make_private_folder(place.parent)
    with owned_folder(place.parent, f".{place.name}-") as path:
        yield path


def sweep_beside(place: Path, *, is_held: bool = False) -> int:
    """Removes what killed processes left of `scratch_directory(place)`; returns how many folders.

    `is_held`: nobody else may write there now, so that what is left is swept however young it is.
    """
    return sweep(place.parent.glob(f".{place.name}-*"), is_held=is_held)


def move_into_place(source: Path, place: Path) -> None:
    """Renames the directory `source` to `place` once its bytes are on the disk.

    Raises `OSError` (`ENOTEMPTY` or `EEXIST`) when `place` holds something: then nothing has changed.
    """
    sync_tree(source)
    disk.rename(source, place)
    disk.sync_path(place.parent)


def sync_tree(source: Path) -> None:
    """Puts the directory and all below it on the disk."""
    for path in sorted(source.rglob("*")):
        disk.sync_path(path)
    disk.sync_path(source)


def move_aside(place: Path) -> None:
    """Removes the directory `place` such that no reader meets a half-removed one."""
    with scratch_directory(place) as grave:
        disk.rename(place, grave / place.name)
