"""Files that hold either the old or the new content, never a part: temp file, fsync, rename, fsync of the directory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from edgetrain.errors import DeviceError
from edgetrain.files.private import make_private_folder, open_private
from edgetrain_tuner import disk

# What the reader can do about it, by the system's reason. Anything else gets the general advice.
_FIXES: Mapping[int, str] = {
    errno.ENOSPC: "free space on that disk, or choose another with --out",
    errno.EDQUOT: "free space within your quota, or choose another disk with --out",
    errno.EFBIG: "raise the file size limit (`ulimit -f`), or choose another disk with --out",
    errno.EROFS: "choose a folder on a writable disk with --out",
    errno.ELOOP: "remove the link of that name, or choose another folder with --out",
    errno.EACCES: "choose a folder you may write to with --out",
}
_STAGED = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_MOST_NAME = 50  # characters of a temp file's name that are its file's; a name may have 255
_YOUNG_S = 60.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_GENERAL_FIX = "check the disk (`dmesg`, `df`), or choose another with --out"


@contextlib.contextmanager
def replaced_file(path: Path, *, keep_old_as: Path | None = None, is_shared: bool = False) -> Iterator[BinaryIO]:
    """A file to write; it takes the place of `path` once the block ends, all of it or not at all.

    If the block or the disk fails, `path` is as before and the temp file is gone. A power cut leaves it; then
    `sweep_staged` removes it. Its name cannot be guessed and the file is new, so nobody can put a link there. With
    `keep_old_as` the old file moves there in the instant before the new one takes its place, and back where that
    fails (a cut between the two leaves no `path`, but the old file under its other name). Only its owner may read it,
    unless it `is_shared`: then the umask decides, as for any program's output.

    Raises `DeviceError` when the disk refuses: full, read-only, broken.
    """
    staged = path.with_name(f".{path.name[:_MOST_NAME]}.{secrets.token_hex(8)}.tmp")
    is_in_place = False
    try:
        if is_shared:
            disk.make_folders(path.parent)
        else:
            make_private_folder(path.parent)
        with _open_shared(staged) if is_shared else open_for_writing(staged) as file:
            yield file
            file.flush()
            disk.sync(file.fileno())
        _take_place(staged, path, keep_old_as)
        is_in_place = True
        sync_directory(path.parent)
    except OSError as error:
        raise disk_error(path, error, is_in_place=is_in_place) from error
    finally:
        if not is_in_place:
            with contextlib.suppress(OSError):  # on a dead disk the removal may fail as well
                disk.remove(staged)


def _take_place(staged: Path, path: Path, keep_old_as: Path | None) -> None:
    if keep_old_as is None or not path.exists():
        disk.rename(staged, path)
        return
    disk.rename(path, keep_old_as)
    try:
        disk.rename(staged, path)
    except OSError:
        with contextlib.suppress(OSError):
            disk.rename(keep_old_as, path)
        raise


def open_for_writing(path: Path) -> BinaryIO:
    """A new file of its owner's alone. Raises `OSError` where there is anything of that name, a link included."""
    return disk.stream(open_private(path, _NEW))


def _open_shared(path: Path) -> BinaryIO:
    return disk.stream(disk.open_file(path, _NEW))


def sweep_staged(folder: Path) -> None:
    """Removes temp files that a killed process left in `folder`. Young ones stay: they may be another command's."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if not _STAGED.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _YOUNG_S:
                    disk.remove(Path(entry.path))


def sync_directory(directory: Path) -> None:
    """Makes renames in the directory survive a power cut."""
    disk.sync_path(directory)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """What the system refuses while the block writes to `path` is a `disk_error`."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: Path, error: OSError, *, is_in_place: bool = False) -> DeviceError:
    """The system's refusal in the reader's words, with what to do about it.

    `is_in_place`: the file has its new content, and what failed is to make that survive a power cut.
    """
    reason = error.strerror or str(error)
    kept = "; what the file held before is intact" if path.exists() else ""
    if is_in_place:
        kept = "; the file is written, and may be lost when power is cut"
    return DeviceError(
        f"cannot write `{path}`",
        why=f"the system says: {reason}{kept}",
        fix=_FIXES.get(error.errno or 0, _GENERAL_FIX),
    )
