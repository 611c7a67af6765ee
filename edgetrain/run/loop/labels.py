"""Labels as the program takes them: checked against the model's output, rows of labels padded to one length."""

from __future__ import annotations

import dataclasses

from edgetrain.dataset.batches import check_labels
from edgetrain.dataset.label_rows import padded_rows
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.graph.ir import LABELS, TrainGraph, evaluated
from edgetrain.recipes import CLASS_LOSSES

CTC = "ctc"


def with_fitting_labels(dataset: Dataset, loss: str, graph: TrainGraph, output: str) -> Dataset:
    """The dataset with labels that fit the program's, in every part. Raises `DataError` for labels that do not."""
    parts = {"train": ("training", dataset.train), "validation": ("validation", dataset.validation)}
    parts["test"] = ("test", dataset.test)
    fitting = {
        field: fitting_part(part, loss, graph, output, name=f"the {name} part")
        for field, (name, part) in parts.items()
        if part is not None
    }
    return dataclasses.replace(dataset, **fitting)  # type: ignore[arg-type]  # its fields are named after its parts


def fitting_part(part: Part, loss: str, graph: TrainGraph, output: str, *, name: str) -> Part:
    """As `with_fitting_labels`, for one part."""
    shape = graph.tensors[evaluated(output)].shape
    if loss in CLASS_LOSSES:
        check_labels(part, shape[1], name=name)
    if loss == CTC:
        return padded_rows(part, classes=shape[2], time_steps=shape[1], width=graph.tensors[LABELS].shape[1], name=name)
    return part
