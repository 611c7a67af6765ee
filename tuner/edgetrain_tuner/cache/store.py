"""A store of entries in one SQLite file: a grow-only union that many processes write at once.

What is in a store depends on what was put, not on the order: exports of two stores with the same entries are equal.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from edgetrain_tuner.cache.database import connect, is_damage, reconnect
from edgetrain_tuner.cache.entry import OUTCOMES, Entry, Target, merge, read_entry
from edgetrain_tuner.cache.errors import EntryError
from edgetrain_tuner.cache.jsonl import BadLine, read_lines

log = logging.getLogger(__name__)

T = TypeVar("T")

_BATCH = 256  # entries to a transaction: one sync for many, and no other writer waits long

NEW, CHANGED, KNOWN = "new", "changed", "known"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What a file brought: ids that were not there, ids that learned something, ids that did not, and bad lines."""

    new: int = 0
    changed: int = 0
    known: int = 0
    bad: tuple[BadLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An id and the number of the change that it was last part of; numbers only grow."""

    id: str
    number: int


class Store:
    """Use `Store.open`. One connection; threads take turns by a lock of their own, processes by SQLite's."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @staticmethod
    def open(path: Path) -> Store:
        """Opens or makes the store. A damaged file is renamed and a new one begun: a cache is not worth an error.

        Raises `CacheError` for a file of another program or a newer version.
        """
        return Store(path, connect(path))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, entry: Entry) -> Entry:
        """Joins the entry with what is known of its id, durably, and returns the result. Raises `EntryError`."""
        self.put_all([entry])
        return self.get(entry.id) or entry

    def put_all(self, entries: Iterable[Entry]) -> list[str]:
        """`put` for many; for each entry `NEW`, `CHANGED` or `KNOWN`. An invalid one raises before anything is written
        of its batch."""
        results: list[str] = []
        remaining = iter(entries)
        # The text of each goes through the same door as a stranger's: nothing that could not be read back is stored.
        while batch := [read_entry(entry.text) for entry in itertools.islice(remaining, _BATCH)]:
            results += self._attempt(lambda batch=batch: self._put_batch(batch))  # type: ignore[misc]
        return results

    def get(self, id_: str) -> Entry | None:
        found = self._select("WHERE id = ?", (id_,))
        return found[0] if found else None

    def lookup(self, class_: str, target: Target) -> tuple[Entry, ...]:
        """Entries of a class for the target's instruction set, the most promising first."""
        found = self._select("WHERE class = ? AND isa = ?", (class_, target.isa))
        return tuple(sorted(found, key=lambda entry: promise(entry, target)))

    def by_class(self, class_: str) -> tuple[str, ...]:
        """The ids of a class, for any target."""
        return tuple(entry.id for entry in self._select("WHERE class = ?", (class_,)))

    def by_family(self, family: str) -> tuple[Entry, ...]:
        """Entries of a family for any target, in the order of their ids: donors for a transfer."""
        return tuple(self._select("WHERE family = ?", (family,)))

    def __iter__(self) -> Iterator[Entry]:
        """Every entry in the order of ids, a page at a time: no lock is held while the caller works."""
        last = ""
        while page := self._rows("WHERE id > ? ORDER BY id LIMIT ?", (last, _BATCH)):
            last = page[-1][0]
            yield from _readable(page)

    def __len__(self) -> int:
        return self._attempt(lambda: int(self._connection.execute("SELECT count(*) FROM entries").fetchone()[0]))

    def import_jsonl(self, path: Path, *, refuse: Callable[[Entry], str | None] = lambda _: None) -> ImportReport:
        """Takes in every good line that `refuse` has no objection to. Bad ones are reported with their number."""
        bad: list[BadLine] = []

        def good() -> Iterator[Entry]:
            for number, item in read_lines(path):
                if isinstance(item, BadLine):
                    bad.append(item)
                elif objection := refuse(item):
                    bad.append(BadLine(line=number, why=objection))
                else:
                    yield item

        results = self.put_all(good())
        return ImportReport(
            new=results.count(NEW), changed=results.count(CHANGED), known=results.count(KNOWN), bad=tuple(bad)
        )

    def gc(self, keep: Callable[[Entry], bool]) -> int:
        """Removes the entries that `keep` does not want, and rows that cannot be read; returns how many.

        They come back with the next pull from a remote that has them: a union does not forget by itself.
        """

        def collect() -> int:
            with self._transaction():
                rows = self._connection.execute("SELECT id, text FROM entries").fetchall()
                kept = {entry.id for entry in _readable(rows) if keep(entry)}
                gone = [(row[0],) for row in rows if row[0] not in kept]
                self._connection.executemany("DELETE FROM entries WHERE id = ?", gone)
                self._connection.executemany("DELETE FROM seen WHERE id = ?", gone)
            self._connection.execute("VACUUM")
            return len(gone)

        return self._attempt(collect)

    @property
    def identity(self) -> str:
        """Drawn when the file was made: numbers of changes mean something together with it only."""
        return self.note("identity")

    def changes(self, since: int, *, most: int) -> tuple[Change, ...]:
        """Ids that came or changed after change number `since`, oldest first."""
        rows = self._attempt(
            lambda: self._connection.execute(
                "SELECT id, changed FROM entries WHERE changed > ? ORDER BY changed LIMIT ?", (since, most)
            ).fetchall()
        )
        return tuple(Change(id=row[0], number=row[1]) for row in rows)

    def note(self, name: str) -> str:
        """A word that was left under a name; empty when there is none."""
        row = self._attempt(
            lambda: self._connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        )
        return str(row[0]) if row else ""

    def set_note(self, name: str, value: str) -> None:
        self._attempt(lambda: self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value)))

    def seen(self) -> dict[str, str]:
        """For a store that mirrors a remote: the tag that each id had there when it was fetched."""
        return dict(self._attempt(lambda: self._connection.execute("SELECT id, tag FROM seen").fetchall()))

    def set_seen(self, tags: Sequence[tuple[str, str]]) -> None:
        def write() -> None:
            with self._transaction():
                self._connection.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", tags)

        self._attempt(write)

    def damaged_rows(self) -> tuple[str, ...]:
        """Ids of rows whose text is no entry of that id: somebody wrote to the file by hand, or a bit flipped."""
        rows = self._rows("ORDER BY id", ())
        return tuple(row[0] for row in rows if _read_row(row) is None)

    def _put_batch(self, entries: Sequence[Entry]) -> list[str]:
        results = []
        with self._transaction():
            # Counted apart from the entries: a number that `gc` removed must not come again, a mirror would miss it.
            number = int(self._connection.execute("SELECT value FROM notes WHERE name = 'changes'").fetchone()[0])
            for entry in entries:
                id_ = entry.id
                row = self._connection.execute("SELECT id, text FROM entries WHERE id = ?", (id_,)).fetchone()
                known = _read_row(row) if row else None
                joined = merge(known, entry) if known else entry
                if known == joined:
                    results.append(KNOWN)
                    continue
                number += 1
                self._connection.execute(
                    "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)",
                    (id_, entry.workload.class_, entry.target.isa, entry.workload.family, number, joined.text),
                )
                results.append(CHANGED if known else NEW)
            self._connection.execute("UPDATE notes SET value = ? WHERE name = 'changes'", (str(number),))
        return results

    def _rows(self, condition: str, values: Sequence[object]) -> list[tuple[str, str]]:
        return self._attempt(
            lambda: self._connection.execute(f"SELECT id, text FROM entries {condition}", values).fetchall()
        )

    def _select(self, condition: str, values: Sequence[object]) -> list[Entry]:
        return list(_readable(self._rows(f"{condition} ORDER BY id", values)))

    def _attempt(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self._connection = reconnect(self.path, self._connection, error)
            return work()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Takes the write lock at once: a transaction that reads first and then wants it can be refused."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a file that is damaged cannot be rolled back either
                self._connection.rollback()
            raise
        self._connection.execute("COMMIT")


def promise(entry: Entry, target: Target) -> tuple[object, ...]:
    """A sort key, the most promising first: near targets, then what was faster, then by how much."""
    return (
        entry.target.distance(target),
        -OUTCOMES.index(entry.outcome),
        -(entry.speedup or 0.0),
        entry.id,
    )


def _readable(rows: Iterable[tuple[str, str]]) -> Iterator[Entry]:
    for row in rows:
        entry = _read_row(row)
        if entry is not None:
            yield entry


def _read_row(row: tuple[str, str]) -> Entry | None:
    """The entry of a row; none, with a warning, where the text is not what was stored under that id."""
    try:
        entry = read_entry(row[1])
    except (EntryError, TypeError, AttributeError) as error:
        log.warning("the schedule %s in the cache is unreadable and is passed over: %s", row[0], error)
        return None
    if entry.id != row[0]:
        log.warning("the schedule %s in the cache was changed and is passed over", row[0])
        return None
    return entry
