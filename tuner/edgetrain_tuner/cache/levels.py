"""Where a schedule is looked for: what this user found, what teams share, what edgetrain ships; the union of all.

user   what was found here: a store that tuning and trials on this machine write, and nothing else
imported  what came in files, beside the user's store
team   a store for each remote, written by pulls only
seed   lines in the package, read-only; for the very kernel, registers and cores as good as a rule (`transfer.py`)
"""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgetrain_tuner.cache.entry import Entry, Target, merge
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.jsonl import BadLine, read_lines
from edgetrain_tuner.cache.store import Store, promise
from edgetrain_tuner.cache.teams import remembered_teams

log = logging.getLogger(__name__)

SEED_FOLDER = Path(__file__).resolve().parent.parent / "seed"
USER, IMPORTED, TEAM, SEED = "user", "imported", "team", "seed"
_RANK = (USER, IMPORTED, TEAM, SEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An entry with everything that any level knows of it, and the first level that has it."""

    entry: Entry
    level: str
    source: str  # where that is, for people: a path or the remote's address
    own: Entry | None = None  # what the user's own store alone says of it
    shipped: Entry | None = None  # what the seed alone says of it


def imported_path(user_path: Path) -> Path:
    """The store for entries from files: what a stranger wrote must not look like what was measured here."""
    return user_path.with_name(f"{user_path.stem}-imported{user_path.suffix}")


class Seed:
    """The entries of all `.jsonl` files in a folder, in memory."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[str, Entry] = {}
        for entry in entries:
            known = self._entries.get(entry.id)
            self._entries[entry.id] = merge(known, entry) if known else entry

    @staticmethod
    def read(folder: Path) -> Seed:
        return Seed(_seed_entries(folder))

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries[id_] for id_ in sorted(self._entries))

    def get(self, id_: str) -> Entry | None:
        return self._entries.get(id_)

    def lookup(self, class_: str, target: Target) -> tuple[Entry, ...]:
        return tuple(e for e in self if e.workload.class_ == class_ and e.target.isa == target.isa)

    def by_family(self, family: str) -> tuple[Entry, ...]:
        return tuple(e for e in self if e.workload.family == family)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    name: str
    source: str
    content: Store | Seed


class Levels:
    """All levels, opened. `user` is the one that is written."""

    def __init__(self, levels: Iterable[Level]) -> None:
        self.levels = tuple(sorted(levels, key=lambda level: _RANK.index(level.name)))

    @staticmethod
    def open(*, user_path: Path, teams_folder: Path, seed_folder: Path | None = SEED_FOLDER) -> Levels:
        """A team's store that fails is left out; the user's raises `CacheError`, `OSError` or `sqlite3.Error`.

        With None for the seed's folder there is no such level.
        """
        levels = [Level(name=USER, source=str(user_path), content=Store.open(user_path))]
        imported = imported_path(user_path)
        if imported.exists():
            levels.append(Level(name=IMPORTED, source=str(imported), content=Store.open(imported)))
        for team in remembered_teams(teams_folder):
            try:
                levels.append(Level(name=TEAM, source=team.url, content=Store.open(team.store_path)))
            except (CacheError, OSError, sqlite3.Error) as error:
                log.warning("the schedules of %s are left out: %s", team.url, error)
        if seed_folder is not None:
            levels.append(Level(name=SEED, source="edgetrain", content=Seed.read(seed_folder)))
        return Levels(levels)

    @property
    def user(self) -> Store:
        (store,) = (level.content for level in self.levels if level.name == USER)
        assert isinstance(store, Store)
        return store

    def lookup(self, class_: str, target: Target) -> tuple[Found, ...]:
        """Of every level, the most promising first; of two that are as near, the one of the earlier level."""
        found = _union((level, level.content.lookup(class_, target)) for level in self.levels)

        def order(one: Found) -> tuple[object, ...]:
            distance, *rest = promise(one.entry, target)
            return (distance, _RANK.index(one.level), *rest)

        return tuple(sorted(found, key=order))

    def by_family(self, family: str) -> tuple[Found, ...]:
        """In the order of ids."""
        found = _union((level, level.content.by_family(family)) for level in self.levels)
        return tuple(sorted(found, key=lambda one: one.entry.id))

    def get(self, id_: str) -> Found | None:
        parts = ((level, level.content.get(id_)) for level in self.levels)
        found = _union((level, (entry,)) for level, entry in parts if entry is not None)
        return found[0] if found else None

    def __iter__(self) -> Iterator[Found]:
        """Everything, in the order of ids."""
        yield from sorted(_union((level, level.content) for level in self.levels), key=lambda one: one.entry.id)

    def close(self) -> None:
        for level in self.levels:
            level.content.close()

    def __enter__(self) -> Levels:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _union(parts: Iterable[tuple[Level, Iterable[Entry]]]) -> list[Found]:
    found: dict[str, Found] = {}
    for level, entries in parts:
        for entry in entries:
            known = found.get(entry.id)
            if known is None:
                own = entry if level.name == USER else None
                known = Found(entry=entry, level=level.name, source=level.source, own=own)
            else:
                known = dataclasses.replace(known, entry=merge(known.entry, entry))
            found[entry.id] = dataclasses.replace(known, shipped=entry) if level.name == SEED else known
    return list(found.values())


def _seed_entries(folder: Path) -> Iterator[Entry]:
    for path in sorted(folder.glob("*.jsonl")):
        for _, item in read_lines(path):
            if isinstance(item, BadLine):
                log.warning("%s, line %d is passed over: %s", path, item.line, item.why)
            else:
                yield item
