"""A dataset as the batches the training loop asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from edgetrain.dataset.augment.augmentation import Augmentation
from edgetrain.dataset.batches import BatchStream, Position, evaluation_batches
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.graph.ir import LABELS, TrainGraph
from edgetrain.model.tensor_names import onnx_name
from edgetrain.recipes import DataSection
from edgetrain.run.engines.engine import Array

VALIDATION = "validation"
TEST = "test"


def conversion_of(data: DataSection, graph: TrainGraph) -> Conversion:
    """How samples become what this graph reads, within its bounds."""
    bounds = dict(graph.input_bounds)
    labels = bounds.pop(LABELS, None)
    return replace(Conversion.of(data), label_bounds=labels, bounds={onnx_name(n): b for n, b in bounds.items()})


class DatasetFeed:
    """Feeds the model's data inputs from a dataset, by name; satisfies `BatchSource`."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch: int,
        seed: int,
        conversion: Conversion,
        augmentation: Augmentation | None = None,
    ) -> None:
        """Only training batches are augmented."""
        self._stream = BatchStream(
            dataset.train, batch=batch, seed=seed, conversion=conversion, augmentation=augmentation
        )
        self._parts: Mapping[str, Part | None] = {VALIDATION: dataset.validation, TEST: dataset.evaluation}
        self._conversion = conversion

    @property
    def steps_per_epoch(self) -> int:
        return self._stream.batches_per_epoch

    def seek(self, position: tuple[int, int]) -> None:
        self._stream.seek(Position(epoch=position[0], index=position[1]))

    def fill(self, inputs: Mapping[str, Array], labels: Array) -> None:
        self._stream.fill(inputs, labels)

    def evaluation(self, split: str, inputs: Mapping[str, Array], labels: Array) -> Iterator[int]:
        part = self._parts[split]
        if part is not None:
            yield from evaluation_batches(part, inputs, labels, self._conversion)
