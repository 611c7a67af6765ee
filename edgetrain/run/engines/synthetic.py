"""Synthetic batches, for checks and measurements that need no real data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgetrain.dataset.bounds import within
from edgetrain.dataset.label_rows import PADDING
from edgetrain.graph.ir import EVALUATE, LABELS, Role, Tensor, TrainGraph, evaluated
from edgetrain.run.engines.engine import Array, Engine

_LEAST_DEVIATION = 1e-2  # of labels from an output that is the same everywhere
_NO_LIMITS: Mapping[str, int] = {}


def fill_synthetic(
    engine: Engine, graph: TrainGraph, *, loss: str, seed: int, limits: Mapping[str, int] = _NO_LIMITS
) -> None:
    """Normals for floating inputs, whole numbers as below, and labels as the loss reads them.

    A whole number is a place in a table or a length: 0 or 1, or from 1 to below the limit that is known for its input.
    What has bounds is within them.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    for tensor in graph.by_role(Role.INPUT):
        if not tensor.name.startswith("train."):
            engine.tensor(tensor.name)[...] = _made_up(rng, tensor, limits.get(tensor.name))
    labels = engine.tensor(LABELS)
    labels[...] = _LABELS[loss](rng, graph)


def scatter_labels(engine: Engine, graph: TrainGraph, *, seed: int) -> None:
    """Labels round the model's own output, as far apart as its elements are, for losses of the difference between them.

    A loss that is mostly the size of its labels rounds away what the model does to it.
    """
    engine.call(EVALUATE)
    output = engine.tensor(_output(graph).name).astype(np.float64)
    deviation = max(float(np.std(output)), _LEAST_DEVIATION)
    labels = engine.tensor(LABELS)
    if output.size == labels.size and np.isfinite(output).all():
        noise = np.random.Generator(np.random.PCG64([seed, 2])).standard_normal(labels.shape)
        labels[...] = output.reshape(labels.shape) + deviation * noise


def _made_up(rng: np.random.Generator, tensor: Tensor, limit: int | None = None) -> Array:
    if np.dtype(tensor.dtype).kind == "f":
        values = rng.standard_normal(tensor.shape).astype(tensor.dtype)
    else:
        values = rng.integers(*((0, 2) if limit is None else (1, limit)), tensor.shape).astype(tensor.dtype)
    return values if tensor.bounds is None else within(values, tensor.bounds)


def _output(graph: TrainGraph) -> Tensor:
    prefix = evaluated("")
    return next(t for t in graph.by_role(Role.OUTPUT) if t.name.startswith(prefix))


def _cross_entropy_labels(rng: np.random.Generator, graph: TrainGraph) -> Array:
    """Class numbers, or shares of the classes where the program takes these."""
    return (_shares if graph.tensors[LABELS].dtype.startswith("float") else _classes)(rng, graph)


def _classes(rng: np.random.Generator, graph: TrainGraph) -> Array:
    return rng.integers(0, _output(graph).shape[1], graph.tensors[LABELS].shape)


def _spelt(rng: np.random.Generator, graph: TrainGraph) -> Array:
    """Rows of labels from 1 on, so short that equal neighbours leave time for the blank between them."""
    _, time, classes = _output(graph).shape
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
    "cross-entropy": _cross_entropy_labels,
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
