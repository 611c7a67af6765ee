"""The loss and metrics of one split, over its valid rows, from what the model puts out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from edgetrain.errors import DataError, DivergedError
from edgetrain.graph.ir import EVALUATE, LABELS, evaluated
from edgetrain.model.tensor_names import graph_name
from edgetrain.run.engines.engine import Array, BatchSource, Engine
from edgetrain.run.loop.metrics import METRICS, Metric, Values, loss_metric
from edgetrain.run.loop.settings import TrainSettings


class NotFiniteError(DivergedError):
    """The model put out NaN or infinity: no metric of it means anything."""

    def __init__(self, split: str) -> None:
        super().__init__(
            f"the model's output on the {split} split is no number",
            why="its parameters, or the data of that split, hold NaN or values that overflow",
            fix="lower the learning rate, or check that split for NaN",
        )


def metrics_of(settings: TrainSettings) -> Mapping[str, Metric]:
    """What an evaluation takes the mean of, by name: the loss, then the metrics of the settings.

    A program that trains on mixed labels takes rows of shares. What is evaluated is never mixed: a row is a class.
    """
    metrics = {
        "loss": loss_metric(settings.loss, settings.loss_options),
        **{
            # A metric that is the loss has the loss's options: a contrastive loss at another temperature is another.
            name: loss_metric(name, settings.loss_options) if name == settings.loss else METRICS[name]
            for name in settings.metrics
        },
    }
    if not settings.loss_options.has_label_rows:
        return metrics
    return {name: dataclasses.replace(metric, values=_of_rows(metric.values)) for name, metric in metrics.items()}


def _of_rows(values: Callable[[Array, Array], Values]) -> Callable[[Array, Array], Values]:
    return lambda outputs, labels: values(outputs, labels.argmax(axis=1))


def evaluate(
    engine: Engine,
    source: BatchSource,
    settings: TrainSettings,
    split: str,
    *,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> Mapping[str, float] | None:
    """`loss` and every metric of the settings over the split; None when interrupted on the way.

    Parameters and state stay as they are. Rows that only pad the last batch count for nothing.

    Raises `DataError` for a split without rows, `NotFiniteError` for an output that is no number.
    """
    inputs = {name: engine.tensor(graph_name(name)) for name in settings.inputs}
    labels = engine.tensor(LABELS)
    outputs = engine.tensor(evaluated(settings.output))
    metrics = metrics_of(settings)
    tallies = {name: metric.tally() for name, metric in metrics.items()}
    for valid_rows in source.evaluation(split, inputs, labels):
        engine.call(EVALUATE)
        valid_outputs, valid_labels = outputs[:valid_rows], labels[:valid_rows]
        if not np.isfinite(valid_outputs).all():
            raise NotFiniteError(split)
        stored = settings.target.back(valid_outputs), settings.target.back(valid_labels)
        for name, metric in metrics.items():
            # The loss is what is trained; everything else is in the units of the data.
            tallies[name].add(metric.values(*((valid_outputs, valid_labels) if name == "loss" else stored)))
        if is_interrupted():
            return None
    if not all(tally.count for tally in tallies.values()):
        raise DataError(f"the {split} split holds no rows", fix="give it data, or leave the split out of the recipe")
    return {name: tally.mean for name, tally in tallies.items()}
