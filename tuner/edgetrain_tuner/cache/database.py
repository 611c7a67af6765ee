"""A SQLite file that survives what happens to files: opened together by many processes, and set aside when damaged."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from edgetrain_tuner import disk
from edgetrain_tuner.cache.errors import CacheError

log = logging.getLogger(__name__)

_APPLICATION = 0x45545343  # "ETSC": this file is ours
_VERSION = 1
_BUSY_SECONDS = 60.0
_ATTEMPTS = 50
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS entries (
    id TEXT PRIMARY KEY, class TEXT NOT NULL, isa TEXT NOT NULL, family TEXT NOT NULL,
    changed INTEGER NOT NULL, text TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_class ON entries (class, isa);
CREATE INDEX IF NOT EXISTS by_family ON entries (family);
CREATE INDEX IF NOT EXISTS by_change ON entries (changed);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, tag TEXT NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO notes VALUES ('identity', '{identity}'), ('changes', '0');
PRAGMA application_id = {application};
PRAGMA user_version = {version};
COMMIT;
"""
# Errors of a file that is broken, as opposed to one that is locked, full or forbidden.
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def connect(path: Path) -> sqlite3.Connection:
    """The database at `path`, made when it is not there. One that is damaged is renamed, with a warning.

    Raises `CacheError` for a file that belongs to another program or to a newer version, `sqlite3.Error` for a disk
    that refuses.
    """
    disk.make_folders(path.parent)
    with _locked(path):
        try:
            return _prepared(path)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return _begun_anew(path, str(error))


def reconnect(path: Path, broken: sqlite3.Connection, error: sqlite3.DatabaseError) -> sqlite3.Connection:
    """After damage was met in use: sets the file aside, unless another process has done so, and opens what is there."""
    broken.close()
    with _locked(path):
        try:
            connection = _prepared(path)
            whole = connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        except sqlite3.DatabaseError as again:
            if not is_damage(again):
                raise
            whole = False
        else:
            if whole:
                return connection
            connection.close()
        return _begun_anew(path, str(error))


def is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF in _DAMAGED


def _begun_anew(path: Path, reason: str) -> sqlite3.Connection:
    """A new database with what can still be read of the damaged one, which is renamed; the caller holds the lock."""
    place = _set_aside(path)
    connection = _prepared(path)
    rows = _salvaged(place)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute(
        "UPDATE notes SET value = (SELECT coalesce(max(changed), 0) FROM entries) WHERE name = 'changes'"
    )
    connection.execute("COMMIT")
    log.warning(
        "the schedule cache %s is damaged (%s); it was renamed to %s, and %d of its entries were saved",
        *(path, reason, place, len(rows)),
    )
    return connection


def _salvaged(place: Path) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(place)
        connection.text_factory = _decoded
        with contextlib.closing(connection):
            for row in connection.execute("SELECT id, class, isa, family, changed, text FROM entries"):
                rows.append(row)
    return rows


def _set_aside(path: Path) -> Path:
    number = next(n for n in range(1, 1 << 30) if not path.with_name(f"{path.name}.damaged-{n}").exists())
    place = path.with_name(f"{path.name}.damaged-{number}")
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            disk.rename(path.with_name(path.name + suffix), place.with_name(place.name + suffix))
    disk.rename(path, place)
    return place


def _prepared(path: Path) -> sqlite3.Connection:
    connection = disk.database(path, timeout_s=_BUSY_SECONDS)
    connection.text_factory = _decoded
    try:
        _require_ours(connection, path)
        _patiently(connection, "PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # an entry that was put survives a power cut
        if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            schema = _SCHEMA.format(identity=secrets.token_hex(8), application=_APPLICATION, version=_VERSION)
            connection.executescript(schema)
        connection.execute("SELECT count(*) FROM notes").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _decoded(raw: bytes) -> str:
    """Damage inside a text is for the reader of the entry to find, one row at a time."""
    return raw.decode("utf-8", "replace")


def _require_ours(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application != _APPLICATION and not is_empty:
        raise CacheError(f"`{path}` is no schedule cache", why="it is a database of another program")
    if version > _VERSION:
        raise CacheError(f"`{path}` was written by a newer edgetrain", why=f"its version is {version}, ours {_VERSION}")


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """SQLite does not wait for the change of the journal's mode: another process may be making it right now."""
    for attempt in range(_ATTEMPTS):
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.02)
        else:
            return


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time opens or sets aside: a second one must not rename the file that the first made new."""
    handle = disk.open_file(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        disk.lock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
