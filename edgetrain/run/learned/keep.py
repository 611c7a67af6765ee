"""Writes down what was learned at the end of a run. It is a convenience: the run is whole without it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from edgetrain.dataset.augment.examples import AugmentedExample
from edgetrain.dataset.samples import Dataset
from edgetrain.drawing.pixels import pixels_to_uri
from edgetrain.files.secret_key import SecretKey
from edgetrain.run.engines.engine import BatchSource, Engine
from edgetrain.run.learned.learned import write_learned
from edgetrain.run.learned.observe import observe
from edgetrain.run.loop.settings import TrainSettings

log = logging.getLogger(__name__)


def keep_learned(
    engine: Engine,
    source: BatchSource,
    settings: TrainSettings,
    dataset: Dataset,
    folder: Path,
    *,
    key: SecretKey | None = None,
    augmented: Callable[[], Iterable[AugmentedExample]] = tuple,
) -> None:
    """Leaves `learned.json` in the folder, where there is data to evaluate on. What stops it is told, not raised.

    `augmented` gives training pictures beside what the first epochs made of them.
    """
    try:
        learned = observe(engine, source, settings, dataset)
        if learned is not None:
            rows = tuple(
                tuple(pixels_to_uri(pixels) for pixels in (example.original, *example.variants))
                for example in augmented()
            )
            write_learned(replace(learned, augmented=rows), folder, key)
    except Exception as error:  # whatever it is: hours of training must not end without their report for it
        log.warning("what the model gets right and wrong was not written down: %s: %s", type(error).__name__, error)
