"""A dataset as the training loop reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgetrain.dataset.batches import BatchStream, Position, evaluation_batches
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import Part
from edgetrain.errors import UnsupportedError
from edgetrain.run.engine import Array


class DatasetSource:
    """A `BatchSource` over a stream of training batches and the parts that are only evaluated, by name."""

    def __init__(self, stream: BatchStream, parts: Mapping[str, Part], conversion: Conversion | None = None) -> None:
        self._stream = stream
        self._parts = parts
        self._conversion = conversion

    @property
    def steps_per_epoch(self) -> int:
        return self._stream.batches_per_epoch

    def seek(self, position: tuple[int, int]) -> None:
        self._stream.seek(Position(epoch=position[0], index=position[1]))

    def fill(self, inputs: Mapping[str, Array], labels: Array) -> None:
        self._stream.fill(_only_input(inputs), labels)

    def evaluation(self, split: str, inputs: Mapping[str, Array], labels: Array) -> Iterator[int]:
        return evaluation_batches(self._parts[split], _only_input(inputs), labels, self._conversion)


def _only_input(inputs: Mapping[str, Array]) -> Array:
    if len(inputs) != 1:
        raise UnsupportedError(
            f"the model has {len(inputs)} inputs ({', '.join(inputs)}), and a dataset holds one feature array",
            fix="use a model with one input, or train from Python with a `BatchSource` of your own",
        )
    return next(iter(inputs.values()))
