"""Refuses what is no file: a pipe that nobody writes to is waited for without end, and a device never ends."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from edgetrain.errors import EdgetrainError

_KINDS: Mapping[str, Callable[[int], bool]] = {
    "a pipe": stat.S_ISFIFO,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
    "a socket": stat.S_ISSOCK,
}


def require_regular(path: Path, error: type[EdgetrainError]) -> None:
    """Raises `error` where a pipe, a device or a socket is in the place of a file, or at the end of a link.

    Folders pass, and so does a path where nothing is: who reads it knows better what to say.
    """
    kind = irregular_kind(path)
    if kind:
        raise error(
            f"`{path}` is {kind}, not a file",
            why="it may never end, and what it gives cannot be read twice",
            fix="save what it gives in a file, and name that",
        )


def irregular_kind(path: Path) -> str:
    """What is there if it is neither file nor folder, in words; empty for these, and where nothing is."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a text or a path
    except (OSError, ValueError):  # ValueError: a name with a NUL
        return ""
    return next((kind for kind, is_it in _KINDS.items() if is_it(mode)), "")


def require_regular_files(folder: Path, error: type[EdgetrainError]) -> None:
    """Raises `error` as `require_regular` does, for what lies in the folder itself."""
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            require_regular(path, error)
