"""Predictions for what Python hands over: paths, or samples in memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from edgetrain.dataset.frames import is_frame
from edgetrain.dataset.in_memory import features_of
from edgetrain.dataset.unlabelled import Item, unlabelled, unlabelled_rows
from edgetrain.run.files.trained import TrainedRun
from edgetrain.run.predict.model import predict_items
from edgetrain.run.predict.prediction import Prediction
from edgetrain.run.predict.run_model import opened_run_model


def predict_samples(run: TrainedRun, samples: Any, *, threads: int) -> list[Prediction]:
    """A prediction for each sample, in order: files by their paths, or samples in memory, named by their index."""
    with opened_run_model(run, threads=threads) as model:
        about = model.description
        paths = _paths(samples)
        if is_frame(samples):
            items = unlabelled_rows(samples, about.data, about.reading)
        elif paths is None:
            rows = features_of(samples, about.reading, about.data)
            items = tuple(Item(name=str(i), load=partial(rows.__getitem__, i)) for i in range(len(rows)))
        else:
            items = unlabelled(paths, about.data, about.reading, kind=about.data_kind)
        return list(predict_items(model, items))


def _paths(samples: Any) -> list[Path] | None:
    if isinstance(samples, str | Path):
        return [Path(samples)]
    if isinstance(samples, list | tuple) and samples and all(isinstance(path, str | Path) for path in samples):
        return [Path(path) for path in samples]
    return None
