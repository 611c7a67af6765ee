"""The loop over samples, for whatever runs the model: a run's own program, or its ONNX file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from edgetrain.dataset.bounds import Bounds, check_one
from edgetrain.dataset.convert import Conversion, convert_sample
from edgetrain.dataset.unlabelled import Item
from edgetrain.errors import DataError
from edgetrain.run.engines.engine import Array
from edgetrain.run.predict.prediction import Prediction, prediction_of
from edgetrain.run.predict.task import Description


class Model(Protocol):
    """A trained model, ready."""

    @property
    def description(self) -> Description: ...

    @property
    def inputs(self) -> Mapping[str, Array]:
        """What the caller fills: an array for each input, all of one batch."""
        ...

    @property
    def bounds(self) -> Bounds:
        """The lowest and the highest value of those inputs that look something up, by name."""
        ...

    @property
    def is_activated(self) -> bool:
        """Whether outputs have been through a softmax or sigmoid, and values are in the units of the data."""
        ...

    def outputs(self) -> Array:
        """The output for what the inputs hold; valid until the next call."""
        ...


def predict_items(model: Model, items: Sequence[Item]) -> Iterator[Prediction]:
    """A prediction for each item, in their order. One that cannot be read says so; the others are not affected."""
    inputs = model.inputs
    batch = len(next(iter(inputs.values())))
    conversion = replace(Conversion.of(model.description.data), bounds=model.bounds)
    waiting: list[tuple[Item, str]] = []
    rows = 0
    for item in items:
        waiting.append((item, _fill(item, inputs, rows, conversion)))
        rows += not waiting[-1][1]
        if rows == batch:
            yield from _answers(model, waiting)
            waiting, rows = [], 0
    yield from _answers(model, waiting)


def _fill(item: Item, inputs: Mapping[str, Array], row: int, conversion: Conversion) -> str:
    """Writes the sample into its row; why not, where that fails."""
    # A slice, not an index: the row of an array with one dimension must stay a view.
    outs = {name: array[row : row + 1].reshape(array.shape[1:]) for name, array in inputs.items()}
    try:
        convert_sample(item.load(), outs, conversion)
        check_one(outs, conversion.bounds)
    except (DataError, OSError) as error:
        return error.what + (f": {error.why}" if error.why else "") if isinstance(error, DataError) else str(error)
    return ""


def _answers(model: Model, waiting: Sequence[tuple[Item, str]]) -> Iterator[Prediction]:
    description = model.description
    filled = sum(not error for _, error in waiting)
    for array in model.inputs.values():
        array[filled:] = array[:1]  # in bounds, where 0, or what is wrong with a sample, may not be
    outputs = model.outputs() if filled else np.zeros(0)
    row = 0
    for item, error in waiting:
        if error:
            yield Prediction(name=item.name, error=error)
            continue
        yield prediction_of(
            item.name,
            outputs[row],
            kind=description.task.kind,
            reading=description.reading,
            is_activated=model.is_activated,
        )
        row += 1
