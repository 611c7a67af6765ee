"""What each class weighs, so that rare ones count as much as frequent ones."""

from __future__ import annotations

import numpy as np

from edgetrain.dataset.samples import Part
from edgetrain.errors import DataError


def balanced_class_weights(part: Part, classes: int) -> tuple[float, ...]:
    """n / (k · count) for each of the k classes that the part has, as scikit-learn's; 1 for a class that it lacks.

    Every label counts, also of parts with several for each sample. Raises `DataError` where labels are no classes.
    """
    if not np.issubdtype(part.labels.dtype, np.integer):
        raise DataError(
            f"train.class_weights = 'balanced' needs classes, and the labels are of type `{part.labels.dtype}`",
            fix="set train.class_weights=none, or store labels as whole numbers",
        )
    if part.labels.min() < 0 or part.labels.max() >= classes:
        raise DataError(
            f"the labels run from {part.labels.min()} to {part.labels.max()}, and there are {classes} classes",
            fix="renumber the labels from 0 on, or set `model.classes`",
        )
    counts = np.bincount(part.labels.ravel(), minlength=classes)
    present = counts > 0
    weights = np.ones(classes)
    weights[present] = part.labels.size / (present.sum() * counts[present])
    return tuple(weights.tolist())
