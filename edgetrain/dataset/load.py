"""From a recipe's `data` section to a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgetrain.dataset.csv import read_csv
from edgetrain.dataset.file_bytes import read_file_bytes
from edgetrain.dataset.folders import first_kind
from edgetrain.dataset.idx import is_idx_folder, read_idx_folder
from edgetrain.dataset.images import SUFFIXES, read_image_folder
from edgetrain.dataset.mails import read_mails
from edgetrain.dataset.npz import read_npz
from edgetrain.dataset.samples import Array, Dataset, Part, split
from edgetrain.dataset.series import read_series
from edgetrain.dataset.sources import SYSTEM, Roots, find_source
from edgetrain.dataset.text import read_texts
from edgetrain.dataset.wav import read_wavs
from edgetrain.errors import DataError
from edgetrain.recipes import DataSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a reader found. `groups` names the group of each training sample; no group may be in two parts."""

    train: Part
    test: Part | None = None
    class_names: tuple[str, ...] = ()
    groups: Array | None = None


def load_dataset(data: DataSection, *, roots: Roots = SYSTEM) -> Dataset:
    """The data that the section names, limited and split as it says. Raises `DataError` for anything wrong with it."""
    path, known_format = find_source(data.source, roots)
    kind = data.format if data.format != "auto" else known_format
    source = _READERS[detect_format(path) if kind == "auto" else kind](path, data)
    return split(
        source.train,
        name=data.source,
        test=source.test,
        limit=data.limit,
        test_limit=data.test_limit,
        test_share=data.test,
        validation=data.validation,
        class_names=source.class_names,
        groups=source.groups,
    )


_BY_SUFFIX: Mapping[str, str] = {".npz": "npz", ".csv": "csv", ".jsonl": "text"}
# In this order: images often have a text beside them, texts no images.
_BY_CONTENT = (("images", SUFFIXES), ("wav", frozenset({".wav"})), ("text", frozenset({".txt"})))


def detect_format(path: Path) -> str:
    """The format by the file's ending, or by what the folder holds."""
    if path.is_dir():
        if is_idx_folder(path):
            return "idx"
        return first_kind(path, _BY_CONTENT) or "images"  # whose reader says what it looked for
    if path.suffix.lower() in _BY_SUFFIX:
        return _BY_SUFFIX[path.suffix.lower()]
    raise DataError(
        f"the format of {path} is unknown",
        why="edgetrain reads .npz, .csv and .jsonl files, IDX folders, and folders of images, wav or text files",
        fix="set `data.format`, or convert the file with `numpy.savez(file, x=..., y=...)`",
    )


def _csv(path: Path, data: DataSection) -> Source:
    part, names = read_csv(path, data.label)
    return Source(train=part, class_names=names)


def _npz(path: Path, data: DataSection) -> Source:
    train, test = read_npz(path)
    return Source(train=train, test=test)


def _idx(path: Path, data: DataSection) -> Source:
    train, test = read_idx_folder(path)
    return Source(train=train, test=test)


def _images(path: Path, data: DataSection) -> Source:
    train, test, names = read_image_folder(path)
    return Source(train=train, test=test, class_names=names)


def _wav(path: Path, data: DataSection) -> Source:
    part, names, groups = read_wavs(path, data.audio, label=data.label, exclude=data.exclude)
    return Source(train=part, class_names=names, groups=groups)


def _text(path: Path, data: DataSection) -> Source:
    part, names, groups = read_texts(path, data.text, label=data.label, exclude=data.exclude)
    return Source(train=part, class_names=names, groups=groups)


def _mails(path: Path, data: DataSection) -> Source:
    part, names, groups = read_mails(path, data.text, exclude=data.exclude)
    return Source(train=part, class_names=names, groups=groups)


def _series(path: Path, data: DataSection) -> Source:
    part, names, groups = read_series(path, data.series, label=data.label)
    return Source(train=part, class_names=names, groups=groups)


def _bytes(path: Path, data: DataSection) -> Source:
    part, names, groups = read_file_bytes(path, data.bytes, exclude=data.exclude)
    return Source(train=part, class_names=names, groups=groups)


_READERS: Mapping[str, Callable[[Path, DataSection], Source]] = {
    "csv": _csv,
    "npz": _npz,
    "idx": _idx,
    "images": _images,
    "wav": _wav,
    "text": _text,
    "mails": _mails,
    "series": _series,
    "bytes": _bytes,
}
