"""Folders of files, one sub-folder a class: what the readers of clips, texts and bytes have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from edgetrain.dataset.samples import Array
from edgetrain.errors import DataError

_LITTER = frozenset({"__MACOSX", "__pycache__", "@eaDir", "Thumbs.db", "$RECYCLE.BIN"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFiles:
    """Files with the number of their class, in the order of class and path."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]


def first_kind(folder: Path, kinds: Sequence[tuple[str, Collection[str]]]) -> str | None:
    """The first of the kinds (name, endings of files) of which a file lies below a sub-folder; None where none does."""
    found: set[str] = set()
    for path in (path for entry in sub_folders(folder) for path in entry.rglob("*")):
        found.add(path.suffix.lower())
        if path.suffix.lower() in kinds[0][1]:
            break  # nothing can come before the first kind, and the folder may be large
    return next((kind for kind, endings in kinds if not found.isdisjoint(endings)), None)


def class_files(folder: Path, suffixes: Sequence[str], *, exclude: Sequence[str] = ()) -> ClassFiles:
    """The files at any depth below each sub-folder, whose name is the class; all endings where `suffixes` is empty.

    A sub-folder without such files is no class. Raises `DataError` where there is none.
    """
    found: dict[str, list[Path]] = {}
    for entry in sub_folders(folder):
        files = sorted(
            path
            for path in entry.rglob("*")
            if (not suffixes or path.suffix.lower() in suffixes)
            and not any(is_litter(part) for part in path.relative_to(entry).parts)
            and not is_excluded(path, folder, exclude)
            and path.is_file()
        )
        if files:
            found[entry.name] = files
    if not found:
        raise DataError(
            f"{folder} holds no such files",
            why=f"looked for {', '.join(suffixes) or 'files'} in a sub-folder for each class",
            fix=f"arrange them as `folder/class/name{suffixes[0] if suffixes else ''}`",
        )
    return ClassFiles(
        paths=tuple(path for files in found.values() for path in files),
        labels=tuple(label for label, files in enumerate(found.values()) for _ in files),
        class_names=tuple(found),
    )


def sub_folders(folder: Path) -> tuple[Path, ...]:
    """The folders within it, in the order of their names, without those that programs leave behind."""
    return tuple(sorted(entry for entry in folder.iterdir() if not is_litter(entry.name) and entry.is_dir()))


def is_litter(name: str) -> bool:
    """Whether programs leave files and folders of this name behind: `.ipynb_checkpoints`, `._1.jpg`, `__MACOSX`."""
    return name.startswith(".") or name in _LITTER


def is_excluded(path: Path, folder: Path, patterns: Sequence[str]) -> bool:
    """Whether a glob of `data.exclude` matches the path as it reads below `folder`."""
    below = path.relative_to(folder).as_posix()
    return any(fnmatchcase(below, pattern) for pattern in patterns)


def content_groups(contents: Iterable[bytes]) -> Array:
    """Equal contents are one group, so that no copy of a training sample is held out."""
    return np.array([hashlib.sha256(content).hexdigest()[:16] for content in contents])
