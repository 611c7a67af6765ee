"""A content-addressed store of built things: the key is a hash of every value the build depends on."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgetrain.errors import DeviceError, InternalError
from edgetrain.files.atomic_folder import move_aside, move_into_place, scratch_directory
from edgetrain.files.scratch import sweep
from edgetrain.files.texts import parse_json
from edgetrain_tuner import disk

log = logging.getLogger(__name__)

INDEX = "entry.json"
OBJECTS = "objects"  # compiled kernels, beside the entries, whose names are hexadecimal

_FORMAT = "edgetrain.cache/1"
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_UNFINISHED = re.compile(r"\..+-")
_ATTEMPTS = 8  # each lost race means that another process stored the same entry
_YOUNG_S = 3600.0  # from one stage of a job to the next that reads it


def cache_key(*parts: bytes | str | Mapping[str, object]) -> str:
    """The SHA-256 of the parts, as hex. Equal values give equal keys, in whatever order a mapping holds them.

    Each part goes in with its kind and length, so that no two lists of parts run together into the same bytes.
    Raises `InternalError` for a mapping that has no canonical JSON (`NaN`, objects, keys that are not strings).
    """
    digest = hashlib.sha256()
    for part in parts:
        kind, data = _canonical(part)
        digest.update(f"{kind}{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class BuildCache:
    """Entries are directories below `root`. Processes may share it: an entry appears whole, by one rename.

    What was used longest ago goes when there is more than `trim` allows; what was used in the last hour, or is `held`,
    stays.
    """

    root: Path

    def get(self, key: str) -> Path | None:
        """The directory stored under `key`, or none. An entry that was damaged counts as none."""
        place = self._place(key)
        if not _is_whole(place):
            return None
        with contextlib.suppress(OSError):  # a cache that is only read
            disk.touch(place / INDEX)
        return place

    def sweep(self) -> int:
        """Removes what killed processes left of builds that they did not finish; returns how many folders."""
        kinds = [path for path in _listed(self.root) if not path.name.startswith(".")]
        places = (self.root, *kinds, *_listed(self.root / OBJECTS))
        return sweep(path for place in places for path in _listed(place) if _UNFINISHED.match(path.name))

    def trim(self, most_bytes: int) -> int:
        """Removes what was used longest ago until the rest takes at most so much; returns how many bytes went."""
        found = sorted(_things(self.root), key=lambda thing: thing.used_at)
        excess = sum(thing.nbytes for thing in found) - most_bytes
        young = time.time() - _YOUNG_S
        removed = 0
        for thing in found:
            if removed >= excess or thing.used_at > young:
                break
            if _removed(thing.path):
                removed += thing.nbytes
        return removed

    def put(self, key: str, build: Callable[[Path], None]) -> Path:
        """The entry of `key`, made by `build` in an empty directory unless it is there already.

        When two processes build the same entry, the first to finish is kept and both get it. What `build` raises
        passes through, and leaves nothing behind. Raises `DeviceError` when the disk refuses, also what `build` writes.
        """
        stored = self.get(key)
        if stored is not None:
            return stored
        place = self._place(key)
        with _disk_errors(place), scratch_directory(place) as scratch:
            built = scratch / "entry"
            disk.make_folder(built)
            build(built)
            _write_index(built)
            _store(built, place)
        return place

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """An empty directory for what has no key before it is built. What is left there at the end is removed.

        Raises `DeviceError` when the disk refuses."""
        place = self.root / "new"
        with _disk_errors(place), scratch_directory(place) as scratch:
            yield scratch

    def _place(self, key: str) -> Path:
        if not _KEY.match(key):
            raise InternalError(f"`{key}` is not a cache key: use `cache_key`")
        return self.root / key[:2] / key[2:]


def _listed(folder: Path) -> list[Path]:
    """What is in the folder; nothing, where another process has removed it or it is none."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


@contextmanager
def _disk_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DeviceError(
            f"the build cache could not use `{error.filename or place}`",
            why=error.strerror or str(error),
            fix="free space for the build cache and for temporary files, or move them with XDG_CACHE_HOME and TMPDIR",
        ) from error


@contextmanager
def held(entry: Path) -> Iterator[None]:
    """While the block lasts, no process trims this entry away."""
    try:
        descriptor = os.open(entry / INDEX, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield  # not an entry of a cache: nobody trims it
        return
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            disk.lock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Thing:
    """An entry, or a file beside the entries: a compiled kernel."""

    path: Path
    nbytes: int
    used_at: float


def _things(root: Path) -> Iterator[_Thing]:
    for path in (*root.glob("[0-9a-f]*/[0-9a-f]*"), *root.glob(f"{OBJECTS}/*/[0-9a-f]*")):
        with contextlib.suppress(OSError):  # it went meanwhile
            files = [path / INDEX, *_files_below(path).values()] if path.is_dir() else [path]
            sizes = [file.stat().st_size for file in set(files)]
            yield _Thing(path=path, nbytes=sum(sizes), used_at=files[0].stat().st_mtime)


def _removed(path: Path) -> bool:
    """Whether the thing could be removed: not when a process holds it."""
    try:
        if path.is_file():
            disk.remove(path)
            return True
        descriptor = os.open(path / INDEX, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        disk.lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        move_aside(path)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _store(built: Path, place: Path) -> None:
    for _ in range(_ATTEMPTS):
        try:
            move_into_place(built, place)
        except OSError:
            if not place.exists():
                raise
        else:
            return
        if _is_whole(place):
            return
        log.warning("the cache entry %s is damaged and is replaced", place)
        try:
            move_aside(place)
        except FileNotFoundError:
            continue  # another process removed it first
    raise DeviceError(
        f"the cache entry {place} could not be stored",
        why=f"something else was in its place {_ATTEMPTS} times",
        fix=f"remove {place} and run again",
    )


def _canonical(part: bytes | str | Mapping[str, object]) -> tuple[str, bytes]:
    match part:
        case bytes():
            return "b", part
        case str():
            return "s", part.encode()
        case Mapping():
            return "m", _canonical_json(part)
    raise InternalError(f"a cache key cannot hold {type(part).__name__}")


def _canonical_json(value: Mapping[str, object]) -> bytes:
    _require_text_keys(value)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InternalError("a cache key cannot hold this mapping", why=str(error)) from error


def _require_text_keys(value: object) -> None:
    """JSON writes the keys 1 and "1" alike; two different values must not share an entry."""
    match value:
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InternalError(f"a cache key cannot hold the mapping key {key!r}: use text")
                _require_text_keys(item)
        case list() | tuple():
            for item in value:
                _require_text_keys(item)


def _files_below(directory: Path) -> Mapping[str, Path]:
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {path.relative_to(directory).as_posix(): path for path in paths}


def _write_index(directory: Path) -> None:
    hashes = {name: file_sha256(path) for name, path in _files_below(directory).items()}
    text = json.dumps({"format": _FORMAT, "files": hashes}, indent=1, sort_keys=True) + "\n"
    disk.write_file(directory / INDEX, text.encode())


def _is_whole(directory: Path) -> bool:
    try:
        index = parse_json((directory / INDEX).read_text(encoding="utf-8"))
        found = _files_below(directory)
        expected = index["files"]
        return (
            index["format"] == _FORMAT
            and expected.keys() == found.keys() - {INDEX}
            and all(file_sha256(found[name]) == sha256 for name, sha256 in expected.items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
