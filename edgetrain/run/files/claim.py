"""Whose run folder it is: a process locks it before it reads or writes anything there, and holds it to its end.

The lock is the system's, on `run.lock`: it ends with the process, however that ends. That the file is there says
nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from edgetrain.errors import DataError, DeviceError, UsageError
from edgetrain.files.atomic_file import disk_error, disk_errors, sweep_staged
from edgetrain.files.private import FOLDER_MODE, make_private_folder, open_private
from edgetrain.run.files.folders import RUNS, has_our_recipe, is_free, numbered_folders, require_free
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.tensorboard import TENSORBOARD
from edgetrain_tuner import disk

LOCK = "run.lock"

_PATIENCE_S = 1.0  # a command that asks whether the run is alive holds the lock for an instant
_POLL_S = 0.02
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder is this block's alone. It is made where it is missing, and gone again if nothing was left in it.

    Raises `UsageError` when another process uses it, `DeviceError` when the system refuses, or a link in the folder
    leads elsewhere what a run writes.
    """
    with contextlib.ExitStack() as claim:
        if not claim.enter_context(_claim(folder, patience_s=_PATIENCE_S)):
            raise _in_use(folder)
        _require_own_folders(folder)
        yield


@contextlib.contextmanager
def new_run_folder(out: Path | None, recipe: str, *, runs: Path = RUNS) -> Iterator[Path]:
    """The folder of a new run, claimed: `out`, else the first of `runs/RECIPE`, `runs/RECIPE-2`, ... that nobody has.

    Raises `UsageError` when `out` holds another run or another process uses it, `DeviceError` when the system refuses.
    """
    if out is not None:
        with claimed(out):
            require_free(out, recipe)
            yield out
        return
    for folder in numbered_folders(recipe, runs):
        if not is_free(folder):  # a look first: nothing is made in a folder that is somebody's
            continue
        with _claim(folder, patience_s=0.0) as is_ours:
            if is_ours and is_free(folder):
                yield folder
                return


@contextlib.contextmanager
def resumed_run_folder(folder: Path) -> Iterator[Path]:
    """The folder of a run that goes on, claimed. Raises as `claimed`, and `DataError` where there is no folder."""
    if not folder.is_dir():
        raise DataError(
            f"`{folder}` is not a run folder",
            why="there is no such folder",
            fix="give the folder that `edgetrain fit` named at its end, like `runs/digits`",
        )
    with claimed(folder):
        yield folder


@contextlib.contextmanager
def _claim(folder: Path, *, patience_s: float) -> Iterator[bool]:
    """Whether the folder is ours, until the end of the block."""
    made = _missing(folder)
    try:
        descriptor, is_ours, is_new = _lock(folder, time.monotonic() + patience_s)
    except OSError as error:
        raise disk_error(folder / LOCK, error) from error
    try:
        if is_ours:
            sweep_staged(folder)
        before = _names(folder)
        if is_ours and (before == {LOCK} or has_our_recipe(folder)):
            _make_private(folder)
        yield is_ours
    finally:
        if is_ours and is_new and _names(folder) == before:
            _remove(folder, made)
        os.close(descriptor)


def _lock(folder: Path, ends: float) -> tuple[int, bool, bool]:
    """The open lock file, whether its lock is ours, and whether the file was made for that. Raises `OSError`."""
    is_new = False
    while True:
        descriptor, is_made = _open_lock(folder)
        is_new |= is_made
        try:
            is_ours = _is_locked(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        # A claim that ended may have removed the file that we opened: then the lock is on nothing.
        if (is_ours and _is_still(folder, descriptor)) or (not is_ours and time.monotonic() >= ends):
            return descriptor, is_ours, is_new
        os.close(descriptor)
        if not is_ours:
            time.sleep(_POLL_S)


def _missing(folder: Path) -> tuple[Path, ...]:
    """The folder and those above it that are not there, innermost first."""
    return tuple(path for path in (folder, *folder.parents) if not path.exists())


def _open_lock(folder: Path) -> tuple[int, bool]:
    """The lock file, open, and whether it was made for that. Raises `OSError`."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            make_private_folder(folder)
        except OSError as error:
            raise DeviceError(
                f"cannot make the run folder `{folder}`", why=str(error), fix="choose another with --out DIR"
            ) from error
        with contextlib.suppress(FileNotFoundError):  # a claim that ended has removed the folder again
            try:
                descriptor, is_new = open_private(folder / LOCK, flags | os.O_CREAT | os.O_EXCL), True
            except FileExistsError:
                descriptor, is_new = disk.open_file(folder / LOCK, flags), False
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor, is_new
            os.close(descriptor)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_locked(descriptor: int) -> bool:
    """Whether the lock could be had. Raises `OSError` where the disk has no locks."""
    try:
        disk.lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def _is_still(folder: Path, descriptor: int) -> bool:
    """Whether the open file is the one that others would open now."""
    try:
        return os.path.samestat((folder / LOCK).lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def _remove(folder: Path, made: tuple[Path, ...]) -> None:
    """What the claim made. The file goes while its lock is held; who waits for it sees that and makes another."""
    with contextlib.suppress(OSError):
        disk.remove(folder / LOCK)
        for path in made:
            disk.remove_folder(path)  # never more than an empty folder


def _require_own_folders(folder: Path) -> None:
    """Files are replaced, links among them; what is written into a folder follows it to wherever it leads."""
    for path in (RunFolder(folder).program, folder / TENSORBOARD):
        if path.is_symlink():
            raise disk_error(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))


def _make_private(folder: Path) -> None:
    """A run's folder that was there: made by hand, or by a version that left it to the umask."""
    with disk_errors(folder), contextlib.suppress(PermissionError):  # somebody else's, who lets us write there
        disk.set_mode(folder, FOLDER_MODE)


def _in_use(folder: Path) -> UsageError:
    return UsageError(
        f"the run in `{folder}` is going on in another process",
        why="another process is using the folder, and two runs would overwrite each other's files",
        fix="wait for it or stop it, or choose another folder with --out",
    )
