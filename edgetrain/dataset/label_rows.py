"""Rows of labels, for models that spell: class numbers from 1 on, each row padded at its end with −1."""

from __future__ import annotations

import numpy as np

from edgetrain.dataset.samples import Array, Part
from edgetrain.errors import DataError

PADDING = -1


def padded_rows(part: Part, *, classes: int, time_steps: int, width: int, name: str) -> Part:
    """The part with rows of `width` labels. Raises `DataError` where a row cannot be spelt in so many time steps.

    Each time step spells one label at most, and two equal neighbours need a blank, class 0, between them.
    """
    labels = part.labels
    if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"{name} has labels of type `{labels.dtype}` and shape {labels.shape}",
            why="the loss `ctc` takes a row of class numbers for each sample",
            fix="store an array of whole numbers, (samples, longest row), each row padded at its end with -1",
        )
    _require_spellable(labels, classes=classes, time_steps=time_steps, width=width, name=name)
    if labels.shape[1] > width:
        labels = labels[:, :width]  # nothing but padding is cut: every row fits
    missing = width - labels.shape[1]
    return Part(features=part.features, labels=np.pad(labels, ((0, 0), (0, missing)), constant_values=PADDING))


def _require_spellable(labels: Array, *, classes: int, time_steps: int, width: int, name: str) -> None:
    is_label = labels != PADDING
    lengths = is_label.sum(axis=1)
    needed = lengths + ((labels[:, 1:] == labels[:, :-1]) & is_label[:, 1:]).sum(axis=1)
    problems = (
        (is_label & ((labels < 1) | (labels >= classes))).any(axis=1),
        (is_label[:, 1:] & ~is_label[:, :-1]).any(axis=1),
        lengths > width,
        needed > time_steps,
    )
    wrong = np.flatnonzero(np.any(problems, axis=0))
    if not len(wrong):
        return
    row = int(wrong[0])
    reasons = (
        f"classes run from 1 to {classes - 1}; 0 is the blank",
        "-1 stands before a label; it may only fill the end of a row",
        f"the row has {lengths[row]} labels and train.label_length is {width}",
        f"the model has {time_steps} time steps and the row needs {needed[row]}",
    )
    raise DataError(
        f"{name} has a row of labels at sample {row} that the model cannot put out",
        why=next(reason for problem, reason in zip(problems, reasons, strict=True) if problem[row]),
        fix=f"correct such rows or leave them out; {len(wrong)} of {len(labels)} are like that",
    )
