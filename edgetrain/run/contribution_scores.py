"""Contribution analysis on a device: a program and a few batches say what each parameter is worth training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgetrain.errors import DivergedError
from edgetrain.graph.contribution import Contribution, gradient_scores, row_scores
from edgetrain.graph.ir import LABELS, STEP
from edgetrain.model.tensor_names import graph_name
from edgetrain.run.engines.engine import BatchSource, Engine

ACCUMULATED = "accumulated"  # as the graph's builder names the gradients that grow over several batches


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Which tensors to score, and on how many training batches."""

    inputs: tuple[str, ...]
    names: tuple[str, ...]
    batches: int
    output_axes: Mapping[str, int] = field(default_factory=dict)  # weights whose outputs are scored one by one


def scores_from_gradients(engine: Engine, source: BatchSource, request: ScoreRequest) -> Contribution:
    """‖mean gradient‖² of each parameter. The program must accumulate gradients and have applied none yet.

    Raises `DivergedError` when a gradient is no number.
    """
    inputs = {name: engine.tensor(graph_name(name)) for name in request.inputs}
    source.seek((0, 0))
    for _ in range(request.batches):
        source.fill(inputs, engine.tensor(LABELS))
        engine.call(STEP)
    gradients = {n: engine.tensor(f"{ACCUMULATED}:{n}") for n in request.names}
    scores = _checked(gradient_scores(gradients))
    return Contribution(tensors=scores, rows=row_scores(gradients, request.output_axes))


def _checked(scores: dict[str, float]) -> dict[str, float]:
    broken = [name for name, score in scores.items() if not np.isfinite(score)]
    if broken:
        raise DivergedError(
            f"the contribution of {len(broken)} tensors is no number, `{broken[0]}` first",
            why="the model, or the training data, holds NaN or values that overflow",
            fix="check the data for NaN, and that it is scaled as the model expects",
        )
    return scores
