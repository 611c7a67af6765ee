"""A content-addressed store of built things: the key is a hash of every value the build depends on."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgetrain.errors import DeviceError, InternalError
from edgetrain.files.atomic_folder import move_aside, move_into_place, scratch_directory

log = logging.getLogger(__name__)

INDEX = "entry.json"

_FORMAT = "edgetrain.cache/1"
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_ATTEMPTS = 8  # each lost race means that another process stored the same entry


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
    """Entries are directories below `root`. Processes may share it: an entry appears whole, by one rename."""

    root: Path

    def get(self, key: str) -> Path | None:
        """The directory stored under `key`, or none. An entry that was damaged counts as none."""
        place = self._place(key)
        return place if _is_whole(place) else None

    def put(self, key: str, build: Callable[[Path], None]) -> Path:
        """The entry of `key`, made by `build` in an empty directory unless it is there already.

        When two processes build the same entry, the first to finish is kept and both get it. What `build` raises
        passes through, and leaves nothing behind.
        """
        stored = self.get(key)
        if stored is not None:
            return stored
        place = self._place(key)
        with scratch_directory(place) as scratch:
            built = scratch / "entry"
            built.mkdir()
            build(built)
            _write_index(built)
            _store(built, place)
        return place

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """An empty directory for what has no key before it is built. What is left there at the end is removed."""
        with scratch_directory(self.root / "new") as scratch:
            yield scratch

    def _place(self, key: str) -> Path:
        if not _KEY.match(key):
            raise InternalError(f"`{key}` is not a cache key: use `cache_key`")
        return self.root / key[:2] / key[2:]


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
    (directory / INDEX).write_text(text, encoding="utf-8")


def _is_whole(directory: Path) -> bool:
    try:
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        found = _files_below(directory)
        expected = index["files"]
        return (
            index["format"] == _FORMAT
            and expected.keys() == found.keys() - {INDEX}
            and all(file_sha256(found[name]) == sha256 for name, sha256 in expected.items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
