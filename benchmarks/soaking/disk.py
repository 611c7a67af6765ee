"""A small disk of a run's own, which somebody else fills up now and then.

As root a `tmpfs` in a private mount namespace: nobody else sees it, and it is gone with the process. Else a limit on
the size of files stands for the full disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_DISK_BYTES = 24 << 20
_BALLAST = "somebody-elses-file"
TMPFS = f"a tmpfs of {_DISK_BYTES >> 20} MB, filled up by somebody else's file"
LIMIT = "a limit on the size of files (RLIMIT_FSIZE), for want of the right to mount a disk"


def can_mount() -> bool:
    """Gives this process mounts of its own. Whether it may do that."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS) != 0:
        return False
    return subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False).returncode == 0


class Disk:
    """A folder that can run full."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self.is_mounted = is_mounted

    def fill(self, left_bytes: int) -> None:
        """Somebody else's file takes all but so many bytes."""
        if not self.is_mounted:
            return
        free = os.statvfs(self.folder)
        takes = free.f_bavail * free.f_frsize - left_bytes
        if takes > 0:
            with contextlib.suppress(OSError), (self.folder / _BALLAST).open("ab") as file:
                os.posix_fallocate(file.fileno(), file.tell(), takes)

    def free(self) -> None:
        (self.folder / _BALLAST).unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, *, may_mount: bool) -> Iterator[Disk]:
    """The disk at `folder`. Unmounted at the end, so what has to stay is copied before."""
    folder.mkdir(parents=True, exist_ok=True)
    if not may_mount:
        yield Disk(folder, is_mounted=False)
        return
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "edgetrain-soak", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield Disk(folder, is_mounted=True)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
