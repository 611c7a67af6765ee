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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFiles:
    """Files with the number of their class, in the order of class and path."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]


def first_kind(folder: Path, kinds: Sequence[tuple[str, Collection[str]]]) -> str | None:
    """The first of the kinds (name, endings of files) of which a file lies below a sub-folder; None where none does."""
    found: set[str] = set()
    for path in folder.glob("*/**/*"):
        found.add(path.suffix.lower())
        if path.suffix.lower() in kinds[0][1]:
            break  # nothing can come before the first kind, and the folder may be large
    return next((kind for kind, endings in kinds if not found.isdisjoint(endings)), None)


def class_files(folder: Path, suffixes: Sequence[str], *, exclude: Sequence[str] = ()) -> ClassFiles:
    """The files at any depth below each sub-folder, whose name is the class; all endings where `suffixes` is empty.

    Raises `DataError` where there is none.
    """
    names = tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()))
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found = sorted(
            path
            for path in (folder / name).rglob("*")
            if path.is_file()
            and (not suffixes or path.suffix.lower() in suffixes)
            and not is_excluded(path, folder, exclude)
        )
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise DataError(
            f"{folder} holds no such files",
            why=f"looked for {', '.join(suffixes) or 'files'} in a sub-folder for each class",
            fix=f"arrange them as `folder/class/name{suffixes[0] if suffixes else ''}`",
        )
    return ClassFiles(paths=tuple(paths), labels=tuple(labels), class_names=names)


def is_excluded(path: Path, folder: Path, patterns: Sequence[str]) -> bool:
    """Whether a glob of `data.exclude` matches the path as it reads below `folder`."""
    below = path.relative_to(folder).as_posix()
    return any(fnmatchcase(below, pattern) for pattern in patterns)


def content_groups(contents: Iterable[bytes]) -> Array:
    """Equal contents are one group, so that no copy of a training sample is held out."""
    return np.array([hashlib.sha256(content).hexdigest()[:16] for content in contents])
