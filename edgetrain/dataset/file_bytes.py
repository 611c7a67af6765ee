"""Reads files of any kind as tokens, one for each of their first and last bytes: what models of file types read.

White space at both ends of that span does not count, as in Magika. Files are opened when they are needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.folders import ClassFiles, class_files, content_groups, is_excluded
from edgetrain.dataset.override_hint import override_hint
from edgetrain.dataset.samples import Array, Part
from edgetrain.errors import DataError
from edgetrain.recipes import BytesSection

_LEAST_BYTES = 8  # less tells nothing about its kind; the same limit as Magika's
_BLOCK_BYTES = 4096  # how far from either end white space is skipped; Magika's number too


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTokens:
    """Files by index as int32 tokens: the first bytes, then the last, each padded on its outer side."""

    paths: tuple[Path, ...]
    settings: BytesSection

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any, /) -> Array:
        return file_tokens(self.paths[int(index)], self.settings)


def read_file_bytes(
    folder: Path, settings: BytesSection, *, exclude: Sequence[str] = ()
) -> tuple[Part, tuple[str, ...], Array]:
    """The files, the names of their classes, and groups: equal tokens are one, so that no copy is held out.

    With `endings` a file's class is its ending, at any depth below the folder; without, the name of its sub-folder.
    Of a class with too many files, those whose paths hash lowest are taken.
    """
    found = (
        _by_ending(folder, settings.endings, exclude) if settings.endings else class_files(folder, (), exclude=exclude)
    )
    paths: list[Path] = []
    labels: list[int] = []
    for label in range(len(found.class_names)):
        files = [path for path, own in zip(found.paths, found.labels, strict=True) if own == label]
        chosen = _draw(folder, files, settings.most_per_class)
        paths += chosen
        labels += [label] * len(chosen)
    if not paths:
        raise DataError(f"{folder} holds no files of {_LEAST_BYTES} bytes or more", fix="check `data.source`")
    part = Part(features=FileTokens(paths=tuple(paths), settings=settings), labels=np.array(labels, np.int64))
    return part, found.class_names, content_groups(file_tokens(path, settings).tobytes() for path in paths)


def _by_ending(folder: Path, endings: Sequence[str], exclude: Sequence[str]) -> ClassFiles:
    paths: list[Path] = []
    labels: list[int] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in endings and path.is_file() and not is_excluded(path, folder, exclude):
            paths.append(path)
            labels.append(endings.index(path.suffix))
    missing = [ending for label, ending in enumerate(endings) if label not in labels]
    if missing:
        raise DataError(
            f"{folder} holds no file that ends in {', '.join(f'`{ending}`' for ending in missing)}",
            fix="leave these out of `data.bytes.endings`, or choose another `data.source`",
        )
    return ClassFiles(paths=tuple(paths), labels=tuple(labels), class_names=tuple(endings))


def _draw(folder: Path, files: Sequence[Path], count: int) -> list[Path]:
    def rank(path: Path) -> str:
        return hashlib.sha256(os.fsencode(path.relative_to(folder))).hexdigest()

    large = [path for path in files if path.stat().st_size >= _LEAST_BYTES]
    return sorted(sorted(large, key=rank)[:count])


def file_tokens(path: Path, settings: BytesSection) -> Array:
    """The file as `first + last` tokens. Raises `DataError` for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_BLOCK_BYTES).lstrip()[: settings.first]
            file.seek(max(0, path.stat().st_size - _BLOCK_BYTES))
            tail = file.read(_BLOCK_BYTES).rstrip()
    except OSError as error:
        leaving_out = override_hint("data.exclude", [f"*{path.name}"])
        raise DataError(f"{path} cannot be read", why=str(error), fix=f"leave it out with {leaving_out}") from error
    tail = tail[len(tail) - min(len(tail), settings.last) :]
    tokens = np.full(settings.first + settings.last, settings.padding, np.int32)
    tokens[: len(head)] = np.frombuffer(head, np.uint8)
    tokens[len(tokens) - len(tail) :] = np.frombuffer(tail, np.uint8)
    return tokens
