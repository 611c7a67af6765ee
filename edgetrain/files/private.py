"""Files and folders that only their owner may read, whatever the umask says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edgetrain_tuner import disk

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_private_folder(path: Path) -> None:
    """Makes the folder, and those above it that are missing, for their owner alone. What is there stays as it is."""
    for missing in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        try:
            disk.make_folder(missing, FOLDER_MODE)
        except FileExistsError:  # another process was first
            continue
        disk.set_mode(missing, FOLDER_MODE)  # a umask may have taken the owner's rights away, too
    if not path.is_dir():
        disk.make_folder(path)  # raises what is in the way


def open_private(path: Path, flags: int) -> int:
    """A descriptor. From an open file that is ours, it takes whatever others may do with it."""
    descriptor = disk.open_file(path, flags, FILE_MODE)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        try:
            disk.set_mode(descriptor, FILE_MODE)
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


def make_tree_private(folder: Path) -> None:
    """Takes from a folder and everything below it whatever others may do with it; links are not followed."""
    for directory, names, files in os.walk(folder):
        disk.set_mode(Path(directory), FOLDER_MODE)
        for name in (*names, *files):
            path = Path(directory, name)
            if path.is_file() and not path.is_symlink():
                disk.set_mode(path, FILE_MODE)
