"""The models whose training steps are timed, as ONNX files, with the data that every side gets.

Weights that no package provides are random: arithmetic and memory are those of the trained model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import onnx

from benchmarks.measure import Prepared, prepare, saved_model
from benchmarks.models.drawn_networks import mobilenet_v2, resnet18
from benchmarks.models.small_networks import Net
from benchmarks.references.trained import Batch
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.ir import LABELS, LEARNING_RATE, TrainGraph
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.run.engines.engine import Engine

CLASSES = 6  # of every model: those that come with another head get a new one
RATE = 1e-4
IMAGE_SIZE = 224
TOKENS = 128

_VOCABULARY = 30522  # of MiniLM
_MLP_SIZES = (784, 512, 512)
_MOMENTUM = OptimizerOptions(kind="sgd", momentum=0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model at one batch size. `source` gives the path of its file, or `zoo:NAME`."""

    model: str
    batch: int
    source: Callable[[], str]
    has_other_head: bool = False
    input_shapes: Mapping[str, tuple[int, ...]] | None = None

    @property
    def name(self) -> str:
        return f"{self.model}:{self.batch}"

    @property
    def options(self) -> TrainOptions:
        return TrainOptions(batch=self.batch, optimizer=_MOMENTUM, input_shapes=self.input_shapes)

    def prepare(self, cache: BuildCache | None = None) -> Prepared:
        """Compiled for this host, from the user's build cache unless another is given."""
        classes = CLASSES if self.has_other_head else None
        return prepare(self.name, self.source(), self.options, classes=classes, cache=cache)


def mlp() -> onnx.ModelProto:
    """Three dense layers on images of 28 × 28: 0.67 million parameters."""
    net = Net(0)
    x = "image"
    for layer, (inputs, outputs) in enumerate(pairwise(_MLP_SIZES)):
        x = net.relu(net.dense(x, f"dense{layer}", inputs=inputs, outputs=outputs))
    net.dense(x, "head", inputs=_MLP_SIZES[-1], outputs=CLASSES, output="logits")
    return net.finish("mlp", _MLP_SIZES[0])


def _file(name: str, build: Callable[[], onnx.ModelProto]) -> Callable[[], str]:
    return lambda: str(saved_model(name, build()))


_RESNET = _file("resnet-18", partial(resnet18, IMAGE_SIZE))

SUBJECTS = (
    Subject(model="resnet-18", batch=4, source=_RESNET),
    Subject(model="resnet-18", batch=16, source=_RESNET),
    Subject(model="mobilenet-v2", batch=4, source=_file("mobilenet-v2", partial(mobilenet_v2, IMAGE_SIZE))),
    Subject(model="efficientnet-lite0", batch=4, source=lambda: "zoo:efficientnet-lite0", has_other_head=True),
    Subject(
        model="minilm-l6",
        batch=8,
        source=lambda: "zoo:minilm-l6",
        has_other_head=True,
        input_shapes={"input_ids": (TOKENS,), "attention_mask": (TOKENS,)},
    ),
    Subject(model="small-cnn", batch=32, source=lambda: "zoo:fashion-cnn", has_other_head=True),
    Subject(model="mlp", batch=32, source=_file("mlp", mlp)),
)


def chosen(names: Sequence[str]) -> tuple[Subject, ...]:
    """Subjects by `MODEL` (every batch size) or `MODEL:BATCH`. Raises `SystemExit` for a name that is none."""
    known = {name for subject in SUBJECTS for name in (subject.model, subject.name)}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"there is no model {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return tuple(subject for subject in SUBJECTS if {subject.model, subject.name} & set(names))


def made_batch(graph: TrainGraph, inputs: Sequence[str], *, seed: int = 0) -> Batch:
    """Normal data, or tokens with nothing masked, and labels, as the graph's inputs want them."""
    rng = np.random.default_rng(seed)
    values = {}
    for name in inputs:
        tensor = graph.tensors[name]
        if np.dtype(tensor.dtype).kind == "f":
            values[name] = rng.standard_normal(tensor.shape, dtype=np.float32)
        elif name == "attention_mask":
            values[name] = np.ones(tensor.shape, tensor.dtype)
        else:
            values[name] = rng.integers(0, _VOCABULARY, tensor.shape, dtype=tensor.dtype)
    labels = graph.tensors[LABELS]
    first, *others = inputs
    return Batch(
        data=values[first],
        more={name: values[name] for name in others},
        labels=rng.integers(0, CLASSES, labels.shape, dtype=labels.dtype),
    )


def fill(engine: Engine, batch: Batch, first_input: str) -> None:
    """The batch and a small learning rate in the engine."""
    for name, value in {first_input: batch.data, **batch.more, LABELS: batch.labels}.items():
        engine.tensor(name)[...] = value
    engine.tensor(LEARNING_RATE)[...] = RATE
