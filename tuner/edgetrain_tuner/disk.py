"""Every way in which edgetrain changes what a disk holds: the calls of the system, by name, and nothing around them.

Checkpoints, caches, reports and run folders are written through this module alone. So a test can take the place of
these functions, and make the k-th call fail, for every k: `tests/edgetrain/faults/`. It is here, and not in edgetrain,
because the schedule cache is written through it as well.

All of them raise `OSError`, but for `database`, which raises `sqlite3.Error`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import BinaryIO, cast


def open_file(path: Path, flags: int, mode: int = 0o666) -> int:
    """A descriptor; no process that we start inherits it."""
    return os.open(path, flags | os.O_CLOEXEC, mode)


def stream(descriptor: int, mode: str = "wb") -> BinaryIO:
    """A buffered file of the descriptor, which it closes at its end."""
    return cast(BinaryIO, os.fdopen(descriptor, mode))


def set_mode(place: int | Path, mode: int) -> None:
    """Of an open file, or of a path."""
    os.chmod(place, mode)  # noqa: PTH101 - a descriptor, too


def sync(descriptor: int) -> None:
    """What the file holds survives a power cut."""
    os.fsync(descriptor)


def sync_path(path: Path) -> None:
    """`sync` for a path; of a folder it makes what was made, renamed and removed in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """In one instant. A file at `target` is replaced, a folder only where it is empty."""
    source.replace(target)


def remove(path: Path) -> None:
    path.unlink()


def touch(path: Path) -> None:
    """It was used now."""
    os.utime(path)


def make_folder(path: Path, mode: int = 0o777) -> None:
    path.mkdir(mode)


def make_folders(path: Path) -> None:
    """With those above it; one that is there is no error."""
    path.mkdir(parents=True, exist_ok=True)


def new_folder(parent: Path, prefix: str) -> Path:
    """A folder of a name that nobody can guess, for its owner alone."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def remove_folder(path: Path) -> None:
    """Where it is empty."""
    path.rmdir()


def remove_tree(path: Path, *, ignore_errors: bool = False) -> None:
    """With `ignore_errors` what can be removed goes, and the rest stays."""
    shutil.rmtree(path, ignore_errors=ignore_errors)


def write_file(path: Path, content: bytes) -> None:
    """A file inside a folder that is not in its place yet: whoever reads it before the folder moves there is us."""
    with stream(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)) as file:
        file.write(content)


def copy_file(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def copy_tree(source: Path, target: Path) -> None:
    make_folder(target)
    for path in sorted(source.iterdir()):
        (copy_tree if path.is_dir() else copy_file)(path, target / path.name)


def lock(descriptor: int, operation: int) -> None:
    """`flock`: the lock ends with the descriptor."""
    fcntl.flock(descriptor, operation)


def database(path: Path, *, timeout_s: float) -> sqlite3.Connection:
    """A connection that threads may share; every statement is a transaction unless it is said otherwise."""
    return sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
