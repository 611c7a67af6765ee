"""Temporary folders that do not stay behind: whoever makes one holds a lock in it, and what nobody holds is swept.

A process that is killed removes nothing. The system lets go of its locks, and that is how the next one knows.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from edgetrain_tuner import disk

OWNER = ".owner"
_NAME = "edgetrain-"  # of folders among the system's temporary files
_YOUNG_S = 60.0  # between its making and its locking, a folder has no owner yet
_OLD_S = 86_400.0  # one without an owner file is of an older version, or of a process that died at once


@contextlib.contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """An empty folder among the system's temporary files, as `edgetrain-PURPOSE-…`; removed at the end."""
    with owned_folder(Path(tempfile.gettempdir()), f"{_NAME}{purpose}-") as path:
        yield path


@contextlib.contextmanager
def owned_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """An empty folder in a new one of this process below `parent`; both are removed at the end."""
    path = disk.new_folder(parent, prefix)
    descriptor: int | None = None
    try:
        content = path / "content"
        disk.make_folder(content)
        descriptor = disk.open_file(path / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        disk.lock(descriptor, fcntl.LOCK_EX)
        yield content
    finally:
        disk.remove_tree(path, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def sweep_scratch_folders() -> int:
    """Removes what killed processes of this user left among the system's temporary files; returns how many folders."""
    return sweep(Path(tempfile.gettempdir()).glob(f"{_NAME}*-*"))


def sweep(folders: Iterable[Path], *, is_held: bool = False) -> int:
    """Removes those of the folders that no process holds; returns how many. What cannot be removed stays.

    `is_held`: the caller has a lock without which nobody makes such folders: none of them is about to be locked.
    """
    return sum(_is_left(path, is_held=is_held) and _removed(path) for path in folders)


def _is_left(path: Path, *, is_held: bool) -> bool:
    """Whether the folder is this user's and its owner is gone. Links are never followed."""
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        age_s = time.time() - status.st_mtime
        descriptor = os.open(path / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return path.is_dir() and (is_held or age_s > _OLD_S)
    except OSError:
        return False
    try:
        disk.lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return is_held or age_s > _YOUNG_S
    finally:
        os.close(descriptor)


def _removed(path: Path) -> bool:
    with contextlib.suppress(OSError):
        disk.remove_tree(path)
        return True
    return False
