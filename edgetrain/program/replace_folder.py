"""Puts a program's folder in its place, where an older one may be: only files that its manifest names are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgetrain.errors import UsageError
from edgetrain.files.atomic_file import sync_directory
from edgetrain.files.atomic_folder import move_aside, move_into_place, sync_tree
from edgetrain.files.build_cache import file_sha256
from edgetrain.files.texts import parse_json
from edgetrain.program.manifest import FORMAT
from edgetrain_tuner import disk

MANIFEST = "manifest.json"


def require_replaceable(directory: Path) -> None:
    """Raises `UsageError` unless the directory is missing, empty, or holds a program of any version."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    if _files_of(directory) is None:
        raise UsageError(
            f"{directory} exists and is not a compiled program",
            why="writing there could replace what it holds",
            fix="choose another place, or remove it first",
        )


def put_in_place(built: Path, directory: Path, *, keeps_changed: bool = False) -> None:
    """Moves the folder `built`, a program on the same file system, to `directory`.

    Of an older program there, the files that its manifest names are replaced or removed; all others stay. With
    `keeps_changed` a file that somebody changed since counts as theirs. Raises `UsageError`, before anything is
    changed, where a new file would take the place of one that is not ours. If the process dies within the exchange,
    the manifest and the files disagree, which `load_artifact` says, and the same call completes it.
    """
    require_replaceable(directory)
    if not directory.exists():
        move_into_place(built, directory)
        return
    older = _files_of(directory) or {}
    newer = {path.name: file_sha256(path) for path in built.iterdir()}
    found = {path.name for path in directory.iterdir()}
    theirs = found - older.keys() - {MANIFEST}
    in_the_way = theirs & newer.keys()
    if keeps_changed:
        in_the_way |= {n for n in found & older.keys() if not _is_one_of(directory / n, older[n], newer.get(n))}
    if in_the_way:
        raise _collision(directory, min(in_the_way))
    if theirs:
        _exchange(built, directory, removed=(found & older.keys()) - newer.keys())
    else:
        move_aside(directory)
        move_into_place(built, directory)


def _exchange(built: Path, directory: Path, *, removed: set[str]) -> None:
    """File by file, the manifest last: others in the folder stay where they are at every moment."""
    sync_tree(built)
    for path in sorted(built.iterdir(), key=lambda path: (path.name == MANIFEST, path.name)):
        disk.rename(path, directory / path.name)
    for name in removed:
        disk.remove(directory / name)
    sync_directory(directory)


def _is_one_of(path: Path, *hashes: str | None) -> bool:
    return path.is_file() and not path.is_symlink() and file_sha256(path) in hashes


def _files_of(directory: Path) -> Mapping[str, str] | None:
    """The files that the manifest there names, with their hashes; None where there is no manifest of a program."""
    try:
        data = parse_json((directory / MANIFEST).read_bytes())
        if not str(data["format"]).startswith(FORMAT.rpartition("/")[0]):
            return None
        return {str(name): str(sha256) for name, sha256 in data["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _collision(directory: Path, name: str) -> UsageError:
    return UsageError(
        f"`{directory / name}` is not a file that edgetrain wrote, or was changed since",
        why="the program has a file of that name, which would replace it",
        fix="move it, or choose another folder",
    )
