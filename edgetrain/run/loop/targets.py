"""Values to predict, as they are trained: with mean 0 and deviation 1 where they are large or tiny.

A network begins with outputs around 1. Prices of 250,000 would make its first gradients overflow, and values of 0.001
would make them vanish. What the model gives, and every metric of it, is in the units of the data again.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from edgetrain.dataset.batches import evaluation_batches
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.reading import Scaling
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.graph.ir import EVALUATE, LABELS, evaluated
from edgetrain.model.tensor_names import graph_name
from edgetrain.recipes import VALUE_LOSSES, Recipe
from edgetrain.run.engines.engine import Array, Engine

# What is left as it is by `auto`: values that a network learns as well without help.
_LARGE, _TINY = 10.0, 0.01
_BATCHES_LOOKED_AT = 4


def scaling_of(dataset: Dataset, recipe: Recipe) -> Scaling:
    """How the targets are to be trained, by the training part. Labels must be as `with_fitting_labels` leaves them."""
    labels, mode = dataset.train.labels, recipe.data.scale_target
    if recipe.train.loss not in VALUE_LOSSES or mode == "off" or not np.issubdtype(labels.dtype, np.floating):
        return Scaling()
    mean, std = float(np.mean(labels, dtype=np.float64)), float(np.std(labels, dtype=np.float64))
    if not std > 0 or (mode == "auto" and abs(mean) <= _LARGE and _TINY <= std <= _LARGE):
        return Scaling()
    return Scaling(mean=mean, std=std)


def with_scaled_targets(dataset: Dataset, scaling: Scaling) -> Dataset:
    """The dataset with its labels as they are trained; its reading knows how."""
    if scaling.is_identity:
        return dataset
    parts = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    scaled = {field: scaled_part(part, scaling) for field, part in parts.items() if part is not None}
    reading = dataclasses.replace(dataset.reading, target=scaling)
    return dataclasses.replace(dataset, reading=reading, **scaled)  # type: ignore[arg-type]  # fields are named after parts


def scaled_part(part: Part, scaling: Scaling) -> Part:
    return part if scaling.is_identity else Part(features=part.features, labels=scaling.forth(part.labels))


def is_in_units_of(part: Part, engine: Engine, *, inputs: tuple[str, ...], output: str, conversion: Conversion) -> bool:
    """Whether the model, as it is, predicts the part's labels in their own units: then it was trained for them.

    It explains half of their variance or more, over the first batches. Parameters and state stay as they are.
    """
    outputs, labels = engine.tensor(evaluated(output)), np.empty_like(engine.tensor(LABELS))
    arrays = {name: engine.tensor(graph_name(name)) for name in inputs}
    errors: list[Array] = []
    for valid_rows in evaluation_batches(part, arrays, labels, conversion):
        engine.call(EVALUATE)
        given, wanted = outputs[:valid_rows].astype(np.float64), labels[:valid_rows].astype(np.float64)
        errors.append(np.square(given.reshape(wanted.shape) - wanted).ravel())
        if len(errors) == _BATCHES_LOOKED_AT:
            break
    return bool(np.concatenate(errors).mean() < 0.5 * np.var(part.labels, dtype=np.float64))
