"""What a finished run is evaluated on: its own data, or other data read in the same way."""

from __future__ import annotations

import dataclasses

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.errors import UsageError
from edgetrain.recipes import VALUE_LOSSES, DataSection
from edgetrain.run.files.trained import TrainedRun

IN_MEMORY = "python:arrays"  # the `data.source` of a run whose data was handed over in Python

_NOT_SEEN_FROM_OUTSIDE = ("mails", "series", "bytes")  # they look like texts, tables, and anything


def evaluation_data(run: TrainedRun, source: str | None = None) -> tuple[Dataset, DataSection]:
    """The run's data, or all of what is at `source`, numbered as the run's classes; and the section that names it.

    Raises `UsageError` for data that only the training process had, and as `load_dataset`.
    """
    data = run.recipe.data
    if source is not None:
        kind = data.format if data.format in _NOT_SEEN_FROM_OUTSIDE else "auto"
        data = dataclasses.replace(
            data, source=source, format=kind, limit=None, test_limit=None, test=0.0, validation=0.0
        )
    elif data.source == IN_MEMORY:
        raise UsageError(
            f"`{run.folder.path}` was trained on data in Python's memory, which a run does not keep",
            fix="give data: `--data SOURCE`, or in Python `run.evaluate((x, y))`",
        )
    return load_dataset(data, reading=run.reading, values=run.recipe.train.loss in VALUE_LOSSES), data


def evaluation_part(dataset: Dataset) -> tuple[Part, str]:
    """The test part, else the validation part, else all there is; and what to call it."""
    if dataset.test is not None:
        return dataset.test, "test"
    if dataset.validation is not None:
        return dataset.validation, "validation"
    return dataset.train, "whole"
