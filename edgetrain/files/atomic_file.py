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
from edgetrain.files.private import FILE_MODE, make_file_private, make_private_folder

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
    `keep_old_as` the old file moves there in the instant before the new one takes its place (a cut between the two
    leaves no `path`, but the old file under its other name). Only its owner may read it, unless it `is_shared`:
    then the umask decides, as for any program's output.

    Raises `DeviceError` when the disk refuses: full, read-only, broken.
    """
    staged = path.with_name(f".{path.name[:_MOST_NAME]}.{secrets.token_hex(8)}.tmp")
    try:
        if is_shared:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            make_private_folder(path.parent)
        with _open_shared(staged) if is_shared else open_for_writing(staged) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep_old_as is not None and path.exists():
            path.replace(keep_old_as)
        staged.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        # After the rename there is nothing to remove; on a dead disk the removal may fail as well.
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)


def open_for_writing(path: Path) -> BinaryIO:
    """A new file of its owner's alone. Raises `OSError` where there is anything of that name, a link included."""
    descriptor = os.open(path, _NEW, FILE_MODE)
    make_file_private(descriptor)
    return os.fdopen(descriptor, "wb")


def _open_shared(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, _NEW, 0o666), "wb")


def sweep_staged(folder: Path) -> None:
    """Removes temp files that a killed process left in `folder`. Young ones stay: they may be another command's."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if not _STAGED.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _YOUNG_S:
                    Path(entry.path).unlink()


def sync_directory(directory: Path) -> None:
    """Makes renames in the directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_error(path: Path, error: OSError) -> DeviceError:
    """The system's refusal in the reader's words, with what to do about it."""
    reason = error.strerror or str(error)
    kept = "; what the file held before is intact" if path.exists() else ""
    return DeviceError(
        f"cannot write `{path}`",
        why=f"the system says: {reason}{kept}",
        fix=_FIXES.get(error.errno or 0, _GENERAL_FIX),
    )
