"""Files and folders that only their owner may read, whatever the umask says."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_private_folder(path: Path) -> None:
    """Makes the folder, and those above it that are missing, for their owner alone. What is there stays as it is."""
    for missing in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        try:
            missing.mkdir(mode=FOLDER_MODE)
        except FileExistsError:  # another process was first
            continue
        missing.chmod(FOLDER_MODE)  # a umask may have taken the owner's rights away, too
    if not path.is_dir():
        path.mkdir()  # raises what is in the way


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: the descriptor of a file that is its owner's alone."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    make_file_private(descriptor)
    return descriptor


def make_file_private(descriptor: int) -> None:
    """Takes from an open file whatever others may do with it. One of somebody else's stays as it is."""
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, FILE_MODE)


def make_tree_private(folder: Path) -> None:
    """Does the same for a folder and everything below it; links are not followed."""
    for directory, names, files in os.walk(folder):
        Path(directory).chmod(FOLDER_MODE)
        for name in (*names, *files):
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                path.chmod(FILE_MODE)
