"""Made-up batches, for programs that are asked whether they are right and not what they learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgetrain.dataset.label_rows import PADDING
from edgetrain.graph.ir import Role, Tensor, TrainGraph
from edgetrain.run.engine import LABELS, Array, Engine, evaluated


def fill_synthetic(engine: Engine, graph: TrainGraph, *, loss: str, seed: int) -> None:
    """Normals for floating inputs, 0 and 1 for whole numbers, and labels as the loss reads them."""
    rng = np.random.Generator(np.random.PCG64(seed))
    for tensor in graph.by_role(Role.INPUT):
        if not tensor.name.startswith("train."):
            engine.tensor(tensor.name)[...] = _made_up(rng, tensor)
    labels = engine.tensor(LABELS)
    labels[...] = _LABELS[loss](rng, graph)


def _made_up(rng: np.random.Generator, tensor: Tensor) -> Array:
    if np.dtype(tensor.dtype).kind == "f":
        return rng.standard_normal(tensor.shape).astype(tensor.dtype)
    return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)


def _output_shape(graph: TrainGraph) -> tuple[int, ...]:
    prefix = evaluated("")
    return next(t.shape for t in graph.by_role(Role.OUTPUT) if t.name.startswith(prefix))


def _classes(rng: np.random.Generator, graph: TrainGraph) -> Array:
    return rng.integers(0, _output_shape(graph)[1], graph.tensors[LABELS].shape)


def _spelt(rng: np.random.Generator, graph: TrainGraph) -> Array:
    """Rows of labels from 1 on, so short that equal neighbours leave time for the blank between them."""
    _, time, classes = _output_shape(graph)
    rows, width = graph.tensors[LABELS].shape
    lengths = rng.integers(1, max(1, min(width, time // 2)) + 1, (rows, 1))
    return np.where(np.arange(width) < lengths, rng.integers(1, classes, (rows, width)), PADDING)


def _normals(rng: np.random.Generator, graph: TrainGraph) -> Array:
    return rng.standard_normal(graph.tensors[LABELS].shape)


def _bits(rng: np.random.Generator, graph: TrainGraph) -> Array:
    return rng.integers(0, 2, graph.tensors[LABELS].shape)


def _shares(rng: np.random.Generator, graph: TrainGraph) -> Array:
    scores = np.exp(_normals(rng, graph))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def _pairs(_rng: np.random.Generator, graph: TrainGraph) -> Array:
    """Each label twice, so that every row has a partner."""
    return np.arange(graph.tensors[LABELS].shape[0]) // 2


def _of_its_type(rng: np.random.Generator, graph: TrainGraph) -> Array:
    return _made_up(rng, graph.tensors[LABELS])


_LABELS: Mapping[str, Callable[[np.random.Generator, TrainGraph], Array]] = {
    "cross-entropy": _classes,
    "bce": _bits,
    "mse": _normals,
    "l1": _normals,
    "focal": _classes,
    "kl": _shares,
    "distillation": _normals,
    "cosine": _normals,
    "nt-xent": _pairs,
    "ctc": _spelt,
    "onnx": _of_its_type,
}
