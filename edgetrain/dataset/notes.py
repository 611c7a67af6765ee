"""What a user should know of their data before it is trained on: what was left out, and what cannot work well."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgetrain.dataset.folders import sub_folders
from edgetrain.dataset.override_hint import override_hint
from edgetrain.dataset.samples import Dataset, Part, is_class_labels
from edgetrain.errors import DataError

_SHOWN = 5


def require_classes(dataset: Dataset) -> None:
    """Raises `DataError` where the source names one class only: there is nothing to tell apart."""
    if len(dataset.class_names) == 1:
        raise DataError(
            f"all samples of {dataset.name} are of one class, `{dataset.class_names[0]}`",
            why="a model learns to tell classes apart, so it needs two or more",
            fix="add samples of another class; in a folder each class has a sub-folder of its own",
        )


def unused_folders(folder: Path, class_names: tuple[str, ...]) -> tuple[str, ...]:
    """A note that names sub-folders which are no classes, because no file in them could be used."""
    within = folder / "train" if (folder / "train").is_dir() and "train" not in class_names else folder
    unused = [entry.name for entry in sub_folders(within) if entry.name not in class_names]
    return (f"no class: {_listed(unused)} in {within}, where no file can be used",) if unused else ()


def training_notes(source: Part, dataset: Dataset, limit: int | None) -> tuple[str, ...]:
    """About the part that is trained on. `limit` is None where the user need not be told of it."""
    notes = []
    if limit is not None and limit < len(source):
        everything = override_hint("data.limit", "none")
        notes.append(f"{limit} of {len(source)} samples are used (data.limit); {everything} uses all")
    labels = dataset.train.labels
    if is_class_labels(labels):
        present, counts = np.unique(labels, return_counts=True)
        if len(present) == 1 and len(labels) > 1:
            notes.append(f"all {len(labels)} training samples have the label {_name(dataset, int(present[0]))}")
        elif len(dataset.class_names) > len(labels):
            notes.append(f"there are fewer training samples ({len(labels)}) than classes ({len(dataset.class_names)})")
        lonely = [_name(dataset, int(label)) for label in present[counts == 1]]
        if dataset.class_names and lonely:
            notes.append(f"one training sample only: {_listed(lonely)}")
    return tuple(notes)


def _name(dataset: Dataset, label: int) -> str:
    return dataset.class_names[label] if label < len(dataset.class_names) else str(label)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
