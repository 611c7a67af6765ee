"""A model full of kinks for `NumpyEngine`: layers clipped to 0 … 1, and a tensor that sits on a kink of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetrain.graph.ir import LABELS, LEARNING_RATE, LOSS, Role, Tensor, TrainGraph
from edgetrain.run.engines.engine import Array
from tests.edgetrain.run.numpy_engine import NumpyEngine

BATCH, WIDTH, LAYERS = 16, 64, 4
TRAINED = tuple(f"w{i}" for i in range(LAYERS))
ON_A_KINK = "k"  # its elements are 0, and the loss adds max(0, element): half of a difference is no derivative


def _tensors() -> tuple[Tensor, ...]:
    def tensor(name: str, shape: tuple[int, ...], role: Role) -> Tensor:
        return Tensor(name=name, shape=shape, dtype="float32", role=role)

    return (
        *(tensor(name, (WIDTH, WIDTH), Role.PARAMETER) for name in TRAINED),
        tensor(ON_A_KINK, (WIDTH,), Role.PARAMETER),
        tensor("x", (BATCH, WIDTH), Role.INPUT),
        tensor(LABELS, (BATCH, WIDTH), Role.INPUT),
        tensor(LEARNING_RATE, (), Role.INPUT),
        tensor(LOSS, (), Role.OUTPUT),
        tensor("evaluate.y", (BATCH, WIDTH), Role.OUTPUT),
    )


GRAPH = TrainGraph(name="clipped", tensors={t.name: t for t in _tensors()}, functions={})


def clipped_network(
    faults: Mapping[str, Any] | None = None, *, kink_where_first_input_is_positive: bool = False
) -> NumpyEngine:
    """`kink_where_first_input_is_positive`: on other data, the tensor on a kink does nothing."""
    rng = np.random.Generator(np.random.PCG64(5))
    # So steep that weights moved by a hundredth carry many units across an end of the clip.
    parameters = {name: rng.standard_normal((WIDTH, WIDTH)) * 4 / np.sqrt(WIDTH) for name in TRAINED}

    def model(arrays: Mapping[str, Array]) -> tuple[float, Mapping[str, Array]]:
        is_kinked = not kink_where_first_input_is_positive or arrays["x"][0, 0] > 0
        return _model(arrays, kink=float(is_kinked))

    return NumpyEngine(GRAPH, model, {**parameters, ON_A_KINK: np.zeros(WIDTH)}, faults)


def _model(arrays: Mapping[str, Array], kink: float) -> tuple[float, Mapping[str, Array]]:
    activations = [arrays["x"]]
    masks = []
    for name in TRAINED:
        sums = activations[-1] @ arrays[name]
        masks.append((sums > 0) & (sums < 1))
        activations.append(np.clip(sums, 0, 1))
    arrays["evaluate.y"][...] = activations[-1]
    difference = activations[-1] - arrays[LABELS]
    loss = np.mean(difference**2) + kink * np.maximum(arrays[ON_A_KINK], 0).sum()
    gradients = {ON_A_KINK: kink * (arrays[ON_A_KINK] > 0).astype(np.float32)}
    slope = 2 * difference / difference.size
    for i in reversed(range(LAYERS)):
        slope = slope * masks[i]
        gradients[TRAINED[i]] = activations[i].T @ slope
        slope = slope @ arrays[TRAINED[i]].T
    return float(loss), gradients
