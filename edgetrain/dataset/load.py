"""From a recipe's `data` section to a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgetrain.dataset.csv import read_csv
from edgetrain.dataset.idx import is_idx_folder, read_idx_folder
from edgetrain.dataset.images import read_image_folder
from edgetrain.dataset.npz import read_npz
from edgetrain.dataset.samples import Dataset, Part, split
from edgetrain.errors import DataError
from edgetrain.locate import data_path
from edgetrain.recipes import DataSection
from edgetrain.schema import close_to

_DEBIAN_DATASETS = Path("/usr/share/datasets")
_BUNDLED = {"digits": "digits.npz"}

# name -> (folder below /usr/share/datasets, Debian package)
_DEBIAN: Mapping[str, tuple[str, str]] = {"fashion-mnist": ("fashion-mnist", "dataset-fashion-mnist")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a reader found."""

    train: Part
    test: Part | None = None
    class_names: tuple[str, ...] = ()


def load_dataset(data: DataSection, *, debian_datasets: Path = _DEBIAN_DATASETS) -> Dataset:
    """The data that the section names, limited and split as it says. Raises `DataError` for anything wrong with it."""
    path = find_source(data.source, debian_datasets=debian_datasets)
    kind = detect_format(path) if data.format == "auto" else data.format
    source = _READERS[kind](path, data)
    return split(
        source.train,
        name=data.source,
        test=source.test,
        limit=data.limit,
        test_limit=data.test_limit,
        validation=data.validation,
        class_names=source.class_names,
    )


def find_source(source: str, *, debian_datasets: Path = _DEBIAN_DATASETS) -> Path:
    """The file or folder that a `data.source` means."""
    kind, colon, name = source.partition(":")
    known: Mapping[str, object] = {"bundled": _BUNDLED, "debian": _DEBIAN}.get(kind if colon else "", {})
    if known and name not in known:
        raise DataError(
            f"there is no data `{source}`{close_to(name, known)}",
            why=f"`{kind}:` knows {', '.join(sorted(known))}",
            fix="use one of them, or the path of a file or folder",
        )
    if kind == "bundled" and colon:
        return data_path(_BUNDLED[name])
    path = Path(source).expanduser()
    fix = "check `data.source`"
    if kind == "debian" and colon:
        folder, package = _DEBIAN[name]
        path, fix = debian_datasets / folder, f"apt-get install -y {package}"
    if not path.exists():
        raise DataError(f"the data `{source}` is missing", why=f"there is no {path}", fix=fix)
    return path


def detect_format(path: Path) -> str:
    """The format by the file's ending, or by what the folder holds."""
    if path.is_dir():
        return "idx" if is_idx_folder(path) else "images"
    if path.suffix.lower() in (".npz", ".csv"):
        return path.suffix.lower().removeprefix(".")
    raise DataError(
        f"the format of {path} is unknown",
        why="edgetrain reads .npz and .csv files, folders of IDX files and folders of images",
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


_READERS: Mapping[str, Callable[[Path, DataSection], Source]] = {
    "csv": _csv,
    "npz": _npz,
    "idx": _idx,
    "images": _images,
}
