"""Files that appear whole or not at all, in folders that several processes, or several machines, write to."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from edgetrain_tuner import disk

_STAGED = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_OLD_S = 86_400.0  # by the clock of whoever wrote it: on a shared drive that may be another machine's


@contextlib.contextmanager
def replaced_file(path: Path, *, mode: int) -> Iterator[BinaryIO]:
    """A file to write; it takes the place of `path` once the block ends. Where anything fails, `path` is as before.

    What killed processes left in the folder goes. Raises `OSError`.
    """
    _sweep(path.parent)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with disk.stream(disk.open_file(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)) as file:
            yield file
            file.flush()
            disk.set_mode(file.fileno(), mode)
            disk.sync(file.fileno())
        disk.rename(staged, path)
        with contextlib.suppress(OSError):  # a network drive may not know how to sync a folder
            disk.sync_path(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            disk.remove(staged)
        raise


def _sweep(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if _STAGED.fullmatch(entry.name) and time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD_S:
                disk.remove(Path(entry.path))
