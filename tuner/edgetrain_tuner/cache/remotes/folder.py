"""A folder that several people can write to, on a network drive for instance: `FOLDER/ab/ab….json`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from edgetrain_tuner import disk
from edgetrain_tuner.cache.entry import MOST_BYTES, Entry, merge
from edgetrain_tuner.cache.errors import AddressError, EntryError, MissingEntryError
from edgetrain_tuner.cache.remotes.remote import SUFFIX, Changes, Listed, id_of_name, read_as
from edgetrain_tuner.cache.whole_file import replaced_file


class FolderRemote:
    """Files appear whole, by one rename; writers take turns by a lock file, where the drive supports locks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def index(self, class_: str) -> tuple[str, ...]:
        found = []
        for listed in self.changes("").listed:
            with contextlib.suppress(EntryError, MissingEntryError):
                if self.get(listed.id).workload.class_ == class_:
                    found.append(listed.id)
        return tuple(found)

    def get(self, id_: str) -> Entry:
        return read_as(id_, _read_file(self._place(id_)))

    def put(self, entry: Entry) -> None:
        id_ = entry.id
        place = self._place(id_)
        if not self._folder.parent.is_dir():
            raise AddressError(f"`{self._folder}` cannot be made", why=f"there is no folder `{self._folder.parent}`")
        disk.make_folders(place.parent)
        with self._locked():
            known: Entry | None = None
            with contextlib.suppress(EntryError, MissingEntryError):  # what is damaged is replaced
                known = self.get(id_)
            joined = merge(known, entry) if known else entry
            if joined != known:
                with replaced_file(place, mode=0o664) as stream:
                    stream.write(joined.text.encode())

    def changes(self, since: str) -> Changes:
        """All of them: times of files on a shared drive are no account of what came when."""
        if not self._folder.is_dir():
            raise AddressError(f"`{self._folder}` is no folder")
        listed = []
        for path in self._folder.glob(f"[0-9a-f][0-9a-f]/*{SUFFIX}"):
            id_ = id_of_name(path.name)
            if id_ is None or id_[:2] != path.parent.name:
                continue
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                listed.append(Listed(id=id_, tag=f"{status.st_mtime_ns}.{status.st_size}.{status.st_ino}"))
        return Changes(listed=tuple(sorted(listed, key=lambda one: one.id)))

    def finish(self) -> None:
        """Every file is in its place already."""

    def _place(self, id_: str) -> Path:
        return self._folder / id_[:2] / f"{id_}{SUFFIX}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        handle = disk.open_file(self._folder / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            with contextlib.suppress(OSError):  # a drive without locks: two pushes of one id may lose a measurement
                disk.lock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _read_file(path: Path) -> bytes:
    """At most one byte more than an entry may have, of a regular file: a stranger may have left a link or a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingEntryError(f"there is no `{path}`") from None
    except OSError as error:
        raise EntryError(f"`{path}` cannot be read", mistakes=(error.strerror or str(error),)) from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise EntryError(f"`{path}` cannot be read", mistakes=("it is no file",))
        with os.fdopen(handle, "rb", closefd=False) as stream:
            return stream.read(MOST_BYTES + 1)
    finally:
        os.close(handle)
