"""Reads a folder of images, one sub-folder a class, opened when they are needed.

    photos/cat/1.jpg   photos/cat/2.jpg   photos/dog/1.jpg

Where the folder holds `train` and `test` (and perhaps `val`), those are the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.folders import ClassFiles, class_files, is_excluded, is_litter, sub_folders
from edgetrain.dataset.image_check import broken_text, find_broken
from edgetrain.dataset.override_hint import override_hint
from edgetrain.dataset.pictures import pillow, read_picture
from edgetrain.dataset.samples import Array, Part
from edgetrain.errors import DataError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
_TRAIN, _TEST, _VALIDATION = "train", "test", ("val", "valid", "validation")
# Pictures of phones, browsers and cameras that are not read. Nobody who has them takes them for litter.
_NOT_READ = frozenset({".arw", ".avif", ".cr2", ".dng", ".heic", ".heif", ".jfif", ".jp2", ".jxl", ".nef"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFiles:
    """Images by index as uint8 or uint16: (height, width) where the file is grey, else (height, width, 3)."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any, /) -> Array:
        return read_picture(self.paths[int(index)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFolder:
    """What a folder of images holds. `notes` are what its reader left out, for the user."""

    train: Part
    validation: Part | None
    test: Part | None
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_image_folder(folder: Path, *, exclude: Sequence[str] = (), skip_broken: bool = False) -> ImageFolder:
    """The parts, and the names of the classes in sorted order.

    Raises `DataError` where there are no images, where Pillow is not installed, and where files cannot be read; these
    are left out with `skip_broken`.
    """
    pillow()
    present = {entry.name for entry in sub_folders(folder)}
    has_parts = _TRAIN in present and bool(sub_folders(folder / _TRAIN))
    found = _class_images(folder / _TRAIN if has_parts else folder, folder, exclude)
    files = {_TRAIN: found}
    for name in (_TEST, *_VALIDATION) if has_parts else ():
        if name in present and any(path.suffix.lower() in SUFFIXES for path in (folder / name).rglob("*")):
            files[name] = _renumbered(folder / name, _class_images(folder / name, folder, exclude), found.class_names)
    broken = find_broken([path for part in files.values() for path in part.paths])
    if broken and not skip_broken:
        first = next(iter(broken.values()))
        raise DataError(
            f"{len(broken)} {'images' if len(broken) > 1 else 'image'} cannot be read: {broken_text(tuple(broken))}",
            why=f"the first is not an image that can be read: {first.why}",
            fix=f"repair or remove them, or leave them out with {override_hint('data.corrupt', 'skip')}",
        )
    parts = {name: _part(part, broken) for name, part in files.items()}
    if not len(parts[_TRAIN]):
        raise DataError(f"{folder} holds no image that can be read", fix="put whole files in their place")
    notes = _notes(folder, broken, exclude, has_parts=has_parts)
    return ImageFolder(
        train=parts[_TRAIN],
        validation=next((parts[name] for name in _VALIDATION if name in parts), None),
        test=parts.get(_TEST),
        class_names=found.class_names,
        notes=notes,
    )


def _notes(
    folder: Path, broken: Mapping[Path, DataError], exclude: Sequence[str], *, has_parts: bool
) -> tuple[str, ...]:
    notes = []
    if broken:
        what = "file that cannot be read is" if len(broken) == 1 else "files that cannot be read are"
        notes.append(f"{len(broken)} {what} left out: {broken_text(tuple(broken))}")
    loose = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and not is_litter(path.name)]
    if loose:
        where = "train and test" if has_parts else "the folder of a class"
        notes.append(f"images in {folder} itself, outside of {where}, are left out: {len(loose)}")
    unread = _unread(folder, exclude)
    if unread:
        found = ", ".join(f"{count} {suffix}" for suffix, count in sorted(unread.items()))
        notes.append(f"pictures of kinds that are not read are left out: {found}; save them as .jpg or .png")
    return tuple(notes)


def _unread(folder: Path, exclude: Sequence[str]) -> Counter[str]:
    return Counter(
        path.suffix.lower()
        for entry in sub_folders(folder)
        for path in entry.rglob("*")
        if path.suffix.lower() in _NOT_READ
        and not any(is_litter(part) for part in path.relative_to(entry).parts)
        and not is_excluded(path, folder, exclude)
    )


def _class_images(folder: Path, source: Path, exclude: Sequence[str]) -> ClassFiles:
    try:
        return class_files(folder, tuple(sorted(SUFFIXES)), exclude=exclude)
    except DataError as error:
        raise DataError(
            f"{source} holds no images", why=error.why, fix="arrange them as `folder/class/image.png`"
        ) from error


def _renumbered(folder: Path, files: ClassFiles, names: tuple[str, ...]) -> ClassFiles:
    unknown = sorted(set(files.class_names) - set(names))
    if unknown:
        raise DataError(
            f"{folder} has the class `{unknown[0]}` that the training part lacks",
            fix="use the same sub-folders in each part",
        )
    labels = tuple(names.index(files.class_names[label]) for label in files.labels)
    return ClassFiles(paths=files.paths, labels=labels, class_names=names)


def _part(files: ClassFiles, broken: Mapping[Path, DataError]) -> Part:
    kept = [(path, label) for path, label in zip(files.paths, files.labels, strict=True) if path not in broken]
    labels = np.array([label for _, label in kept], np.int64)
    return Part(features=ImageFiles(paths=tuple(path for path, _ in kept)), labels=labels)
