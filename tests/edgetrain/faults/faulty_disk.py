"""A disk that fails at the k-th call: `edgetrain_tuner.disk` with a fault plan in its place.

A crash is taken as a picture: at the k-th call the tree is copied as the next process would find it, and the block is
ended. Whatever clean-up still runs in this process runs on the old tree, and `after_crash` puts the picture in its
place. With a power cut the picture lacks what was not synced: see `_Journal`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from edgetrain_tuner import disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens at the k-th call, and in which way."""

    name: str
    number: int = 0  # the system's error; 0: the process ends
    is_lasting: bool = False  # every later call fails as well: a full disk stays full
    is_short: bool = False  # half of what is written arrives before
    is_after: bool = False  # the process ends once the call is done
    loses_names: bool = False  # power cut: what unsynced folders did to names is undone
    keeps_share: float | None = None  # power cut: how much of unsynced content survives

    @property
    def is_power_cut(self) -> bool:
        return self.loses_names or self.keeps_share is not None


ERRORS = (
    Fault(name="disk full", number=errno.ENOSPC),
    Fault(name="disk stays full", number=errno.ENOSPC, is_lasting=True),
    Fault(name="short write", number=errno.ENOSPC, is_short=True),
    Fault(name="broken disk", number=errno.EIO),
)
KILLS = (
    Fault(name="killed before"),
    Fault(name="killed after", is_after=True),
    Fault(name="killed within a write", is_short=True),
)
POWER_CUTS = (
    Fault(name="power cut, unsynced content lost", keeps_share=0.0),
    Fault(name="power cut, unsynced content torn", keeps_share=0.5),
    Fault(name="power cut, unsynced names undone", loses_names=True),
    Fault(name="power cut, names undone and content lost", loses_names=True, keeps_share=0.0),
)
ALL = (*ERRORS, *KILLS, *POWER_CUTS)
FEW = (ERRORS[1], ERRORS[3], KILLS[0], POWER_CUTS[3])  # the harshest of each kind

# Calls that take no room: a full disk refuses none of them.
_FREE_OF_CHARGE = frozenset({"remove", "remove_folder", "remove_tree", "rename", "sync_path", "lock", "touch"})


_COUNTED = (
    *("open_file", "set_mode", "sync", "sync_path", "rename", "remove", "touch", "make_folder", "make_folders"),
    *("new_folder", "remove_folder", "remove_tree", "copy_file", "lock"),
)


class ProcessEnded(BaseException):
    """The process that wrote is no more; the test goes on in its place."""


@dataclass
class FaultyDisk:
    """Counts the calls below `root`, and lets the k-th have its fault."""

    root: Path
    fault: Fault
    at: int  # counted from 1
    calls: list[str] = field(default_factory=list)
    happened: str = ""  # the call that failed

    def __post_init__(self) -> None:
        self._journal = _Journal(self.root)
        self._picture = self.root.with_name(f"{self.root.name}.picture")
        self._shadow = self.root.with_name(f"{self.root.name}.shadow")

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Everything that the product changes on the disk goes through this object while the block lasts."""
        shutil.rmtree(self._shadow, ignore_errors=True)
        self._shadow.mkdir()
        self._journal.shadow = self._shadow
        with pytest.MonkeyPatch.context() as patch:
            for name in _COUNTED:
                patch.setattr(disk, name, self._counted(name, getattr(disk, name)))
            patch.setattr(disk, "stream", self._stream)
            patch.setattr(disk, "database", self._database)
            yield

    def cut_power(self) -> None:
        """After the block: the disk as the next process finds it if the power goes now."""
        self._take_picture()
        self.after_crash()

    def after_crash(self) -> None:
        """The disk as the next process finds it."""
        shutil.rmtree(self.root)
        self._picture.rename(self.root)

    def take(self, name: str, call: Callable[[], Any], *, half: Callable[[], Any] = lambda: None) -> Any:
        """One call of the system: done, or its fault."""
        if self.happened and not self.fault.number:
            return call()  # clean-up of a process that is no more; the picture is taken
        if self.fault.number == errno.ENOSPC and name in _FREE_OF_CHARGE:
            return call()
        self.calls.append(name)
        is_due = len(self.calls) == self.at
        if is_due or (self.happened and self.fault.is_lasting):
            self.happened = self.happened or name
            if self.fault.is_short:
                half()
            if self.fault.number:
                raise _refusal(name, self.fault.number)
            if self.fault.is_after:
                with contextlib.suppress(OSError):
                    call()
            try:
                self._take_picture()
            except OSError as error:
                raise AssertionError("the picture could not be taken") from error
            raise ProcessEnded
        return call()

    def _take_picture(self) -> None:
        shutil.rmtree(self._picture, ignore_errors=True)
        shutil.copytree(self.root, self._picture, symlinks=True)
        self._journal.cut(self._picture, self.fault)

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        journal = self._journal

        def call(*values: Any, **options: Any) -> Any:
            def done() -> Any:
                with journal.undone_where_refused():
                    journal.before(name, *values)
                    result = real(*values, **options)
                journal.after(name, *values, result=result)
                return result

            if not self._is_ours(name, values):
                return real(*values, **options)
            if options.get("ignore_errors"):  # what refuses stays, in silence
                with contextlib.suppress(OSError):
                    self.take(name, done, half=lambda: _half(name, *values))
                return None
            return self.take(name, done, half=lambda: _half(name, *values))

        return call

    def _is_ours(self, name: str, values: tuple[Any, ...]) -> bool:
        return isinstance(values[0], int) or Path(values[0]).absolute().is_relative_to(self.root)

    def _stream(self, descriptor: int, mode: str = "wb") -> BinaryIO:
        raw = _Raw(descriptor, mode.replace("b", ""), self)
        wrapped = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return cast(BinaryIO, wrapped)

    def wrote(self, descriptor: int) -> None:
        self._journal.after("write", descriptor)

    def _database(self, path: Path, *, timeout_s: float) -> sqlite3.Connection:
        owner = self

        class Counted(sqlite3.Connection):
            def execute(self, *values: Any) -> sqlite3.Cursor:
                if "synchronous" in values[0]:  # a crash of the process loses nothing that SQLite has written
                    values = ("PRAGMA synchronous = OFF",)
                return cast(sqlite3.Cursor, owner.take("execute", lambda: super(Counted, self).execute(*values)))

            def executemany(self, *values: Any) -> sqlite3.Cursor:
                values = (values[0], list(values[1]))
                return cast(sqlite3.Cursor, owner.take("execute", lambda: super(Counted, self).executemany(*values)))

            def executescript(self, script: str) -> sqlite3.Cursor:
                return cast(sqlite3.Cursor, owner.take("execute", lambda: super(Counted, self).executescript(script)))

        return sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False, factory=Counted)


def _half(name: str, *values: Any) -> None:
    """What is there when a call that takes a while ends within it."""
    if name == "remove_tree":
        files = sorted(path for path in Path(values[0]).rglob("*") if path.is_file())
        for path in files[: len(files) // 2]:
            path.unlink()
    elif name == "copy_file":
        content = Path(values[0]).read_bytes()
        Path(values[1]).write_bytes(content[: len(content) // 2])


def _refusal(name: str, number: int) -> Exception:
    if name != "execute":
        return OSError(number, os.strerror(number))
    full = number == errno.ENOSPC
    error = sqlite3.OperationalError("database or disk is full" if full else "disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
    return error


class _Raw(io.FileIO):
    """A file whose every write to the system counts as a call."""

    def __init__(self, descriptor: int, mode: str, disk_: FaultyDisk) -> None:
        super().__init__(descriptor, mode)
        self._disk = disk_

    def write(self, data: Any, /) -> int:
        content = bytes(data)

        def some(length: int) -> int:
            written = super(_Raw, self).write(content[:length])
            self._disk.wrote(self.fileno())
            return written

        return int(self._disk.take("write", lambda: some(len(content)), half=lambda: some(len(content) // 2)))

    def truncate(self, size: int | None = None, /) -> int:
        def cut() -> int:
            length = super(_Raw, self).truncate(size)
            self._disk.wrote(self.fileno())
            return length

        return int(self._disk.take("truncate", cut))


class _Journal:
    """What is on the disk for certain, and what a power cut may take.

    A file's content is certain up to the length that it had when it was last synced; a name is certain once its folder
    was synced. Unsynced names are undone in the reverse of their order, as a file system's journal would lose them.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.shadow = root
        self._synced: dict[int, int] = {}  # by inode: bytes that are certain
        self._undo: list[tuple[Path, Callable[[Path], None]]] = []  # the folder whose sync settles it, how to undo it
        self._count = 0

    @contextlib.contextmanager
    def undone_where_refused(self) -> Iterator[None]:
        """What the system itself refused has changed no name."""
        count = len(self._undo)
        try:
            yield
        except OSError:
            del self._undo[count:]
            raise

    def before(self, name: str, *values: Any) -> None:
        path = Path(values[-1] if name == "rename" else values[0]) if not isinstance(values[0], int) else self._root
        there = path.relative_to(self._root) if path.is_relative_to(self._root) else Path()
        if name == "rename":
            source, old = Path(values[0]).relative_to(self._root), self._kept(path)
            # A journal has both ends of a rename or none: the target's folder speaks for both.
            self._undo.append((path.parent, lambda root: _renamed_back(root, source, there, old)))
        elif name in ("remove", "remove_tree") and path.exists():
            kept = self._kept(path)
            self._undo.append((path.parent, lambda root: _put_back(root / there, kept)))
        elif name == "open_file" and values[1] & os.O_CREAT and not path.exists():
            self._undo.append((path.parent, lambda root: (root / there).unlink(missing_ok=True)))

    def after(self, name: str, *values: Any, result: Any = None) -> None:
        if name == "open_file":
            status = os.fstat(result)
            if status.st_size == 0:
                self._synced[status.st_ino] = 0
            self._synced.setdefault(status.st_ino, status.st_size)  # it was there before
        elif name == "sync":
            status = os.fstat(values[0])
            self._synced[status.st_ino] = status.st_size
        elif name == "sync_path":
            path = Path(values[0])
            if path.is_dir():
                self._undo = [(folder, undo) for folder, undo in self._undo if folder != path]
            else:
                self._synced[path.stat().st_ino] = path.stat().st_size
        elif name == "write":
            status = os.fstat(values[0])
            self._synced[status.st_ino] = min(self._synced.get(status.st_ino, 0), status.st_size)
        elif name == "copy_file":
            self._synced[Path(values[1]).stat().st_ino] = 0

    def _kept(self, path: Path) -> Path | None:
        """A copy of what is about to lose its name."""
        if not path.exists():
            return None
        self._count += 1
        kept = self.shadow / str(self._count)
        if path.is_dir():
            shutil.copytree(path, kept)
        else:
            shutil.copy2(path, kept)
        return kept

    def cut(self, picture: Path, fault: Fault) -> None:
        """Takes from the picture what the power cut takes."""
        if fault.keeps_share is not None:
            for path in self._root.rglob("*"):
                status = path.lstat()
                certain = self._synced.get(status.st_ino)
                if certain is not None and certain < status.st_size and stat.S_ISREG(status.st_mode):
                    left = certain + int((status.st_size - certain) * fault.keeps_share)
                    os.truncate(picture / path.relative_to(self._root), left)
        if fault.loses_names:
            for _, undo in reversed(self._undo):
                undo(picture)


def _renamed_back(root: Path, source: Path, target: Path, old: Path | None) -> None:
    if (root / target).exists() and (root / source).parent.is_dir():
        (root / target).rename(root / source)
    _put_back(root / target, old)


def _put_back(path: Path, old: Path | None) -> None:
    if old is not None and path.parent.is_dir() and not path.exists():
        if old.is_dir():
            shutil.copytree(old, path)
        else:
            shutil.copy2(old, path)
