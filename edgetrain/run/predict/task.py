"""What a trained model was trained to say: enough to read its outputs, small enough to travel in the model's file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgetrain.dataset.reading import Reading
from edgetrain.dataset.unlabelled import data_kind
from edgetrain.errors import ModelError
from edgetrain.files.texts import parse_json
from edgetrain.graph.ir import TrainGraph
from edgetrain.model.tensor_names import graph_name
from edgetrain.recipes import DataSection, Recipe, data_section
from edgetrain.run.files.plain_data import record_from_plain

FORMAT = "edgetrain.model/1"
_PREFIX = "edgetrain."
_CLASS_METRICS = ("accuracy", "f1", "top-")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputShape:
    """One input of the model, without the batch."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the model reads and gives. `kind` says what its output means."""

    kind: str  # "classes", "yes-no", "scores", "sequence" or "values"
    output: str  # by its ONNX name
    inputs: Mapping[str, InputShape]


@dataclass(frozen=True, kw_only=True)
class Description:
    """All that turns a file into an answer, apart from the weights."""

    task: Task
    data: DataSection
    data_kind: str  # the format of the data, never `auto` where it could be told
    reading: Reading

    def to_metadata(self) -> dict[str, str]:
        """As properties of an ONNX file. No path of the machine that trained is among them."""
        data = {**asdict(self.data), "source": "", "format": self.data_kind}
        data["text"]["vocabulary"] = Path(self.data.text.vocabulary).name
        return {
            f"{_PREFIX}format": FORMAT,
            f"{_PREFIX}task": _text(asdict(self.task)),
            f"{_PREFIX}data": _text(data),
            f"{_PREFIX}reading": self.reading.to_json(),
        }

    def beside(self, folder: Path) -> Description:
        """With the vocabulary that lies in that folder, where one of its name does."""
        path = folder / self.data.text.vocabulary
        if not path.is_file():
            return self
        return replace(self, data=replace(self.data, text=replace(self.data.text, vocabulary=str(path))))

    @staticmethod
    def from_metadata(properties: Mapping[str, str], *, where: str) -> Description:
        """The inverse of `to_metadata`. Raises `ModelError` for a model that edgetrain has not written."""
        found = properties.get(f"{_PREFIX}format")
        if found != FORMAT:
            raise ModelError(
                f"`{where}` does not say how its data is to be read",
                why=f"its metadata has {f'the format `{found}`' if found else 'no key `edgetrain.format`'}, and models "
                f"that `edgetrain fit` wrote have `{FORMAT}`",
                fix="give the run's folder instead, or train the model again with this version",
            )
        try:
            task, data = (parse_json(properties[f"{_PREFIX}{key}"]) for key in ("task", "data"))
            section = data_section(data)
            return Description(
                task=record_from_plain(Task, task),
                data=section,
                data_kind=section.format,
                reading=Reading.from_json(properties[f"{_PREFIX}reading"], where=f"`edgetrain.reading` of {where}"),
            )
        except (KeyError, ValueError) as error:
            raise ModelError(
                f"the metadata of `{where}` cannot be used", why=str(error), fix="give the run's folder instead"
            ) from error


def describe(recipe: Recipe, reading: Reading, graph: TrainGraph, *, inputs: Sequence[str], output: str) -> Description:
    """What a run's model reads and gives."""
    tensors = {name: graph.tensors[graph_name(name)] for name in inputs}
    return Description(
        task=Task(
            kind=task_kind(recipe.train.loss, recipe.metric),
            output=output,
            inputs={name: InputShape(shape=t.shape[1:], dtype=t.dtype) for name, t in tensors.items()},
        ),
        data=recipe.data,
        data_kind=data_kind(recipe.data),
        reading=reading,
    )


def task_kind(loss: str, metric: str) -> str:
    """What the outputs of a model mean that was trained with this loss and judged by this metric."""
    if loss in _KIND_OF_LOSS:
        return _KIND_OF_LOSS[loss]
    return "scores" if metric.startswith(_CLASS_METRICS) else "values"  # a loss of the user's own


_KIND_OF_LOSS: Mapping[str, str] = {
    "cross-entropy": "classes",
    "focal": "classes",
    "kl": "classes",
    "distillation": "classes",
    "bce": "yes-no",
    "ctc": "sequence",
    "mse": "values",
    "l1": "values",
    "cosine": "values",
    "nt-xent": "values",
}


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True)
