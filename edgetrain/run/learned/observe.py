"""Goes through the evaluation part once more, with the trained parameters, and writes down what the model does."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.dataset.shown import shown
from edgetrain.drawing.pixels import pixels_to_uri
from edgetrain.graph.ir import EVALUATE, LABELS, evaluated
from edgetrain.model.tensor_names import graph_name
from edgetrain.run.engines.engine import Array, BatchSource, Engine
from edgetrain.run.learned.learned import HardSample, Learned
from edgetrain.run.learned.outcomes import Outcomes, outcomes_of
from edgetrain.run.learned.worst import Verdict, WorstTally
from edgetrain.run.loop.feed import TEST
from edgetrain.run.loop.metrics import loss_metric
from edgetrain.run.loop.settings import TrainSettings

_NOT_OF_ONE_SAMPLE = ("nt-xent", "onnx")  # their value depends on the other samples of the batch


def observe(engine: Engine, source: BatchSource, settings: TrainSettings, dataset: Dataset) -> Learned | None:
    """What the engine's parameters do on the evaluation part of `dataset`, which `source` feeds; None without one.

    Reads the part once, and holds one batch and a few numbers for each class. Parameters stay as they are.
    """
    part = dataset.evaluation
    if part is None or not len(part):
        return None
    inputs = {name: engine.tensor(graph_name(name)) for name in settings.inputs}
    outputs, labels = engine.tensor(evaluated(settings.output)), engine.tensor(LABELS)
    losses = loss_metric(settings.loss, settings.loss_options)
    outcomes = outcomes_of(settings.loss, outputs, _judged(labels, settings), part.labels, dataset.reading.target)
    worst = WorstTally()
    done = 0
    for rows in source.evaluation(TEST, inputs, labels):
        engine.call(EVALUATE)
        some, of_them = outputs[:rows], labels[:rows]
        judged = _judged(of_them, settings)
        outcomes.add(some, judged)
        if settings.loss not in _NOT_OF_ONE_SAMPLE:
            found = losses.values(some, judged).reshape(rows, -1).mean(axis=1)
            _keep_worst(worst, outcomes, found, some, judged, first=done)
        done += rows
    names = dataset.class_names
    classes, values, calibration = outcomes.finish(names)
    return Learned(
        part="test" if dataset.test is not None else "validation",
        samples=done,
        class_names=names,
        classes=classes,
        values=values,
        calibration=calibration,
        hardest=tuple(_hard(verdict, part, dataset.reading) for verdict in worst.finish()),
    )


def _judged(labels: Array, settings: TrainSettings) -> Array:
    """Class numbers, also where a program that trains on mixed samples takes a row with a share of each class."""
    if settings.loss_options.has_label_rows:
        numbers: Array = labels.argmax(axis=1)
        return numbers
    return labels


def _keep_worst(
    worst: WorstTally,
    outcomes: Outcomes,
    losses: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    outputs: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    labels: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    *,
    first: int,
) -> None:
    for row, loss in enumerate(losses.tolist()):
        if worst.is_kept(loss):
            worst.add(outcomes.verdict(first + row, loss, outputs[row], labels[row]))


def _hard(verdict: Verdict, part: Part, reading: Reading) -> HardSample:
    seen = shown(part.features, verdict.index, columns=reading.columns)
    picture = pixels_to_uri(seen.picture) if seen.picture is not None else ""
    return HardSample(**asdict(verdict), row=seen.row, file=seen.file, text=seen.text, picture=picture)
