"""Activations whose gradient follows from their output: the input need not be kept for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import constant_like, te, tirx
from edgetrain.graph.gradients.rule import Backward, Gradients, Rule


def _relu(step: Backward) -> Gradients:
    def relu_gradient(y: Any, dy: Any) -> Any:
        # Select, not if_then_else: both sides are safe to evaluate, and vectorised lanes differ.
        return te.compute(y.shape, lambda *i: tirx.Select(y[i] > constant_like(0.0, y), dy[i], constant_like(0.0, dy)))

    return [step.emit_te(relu_gradient, step.outputs[0], step.output_gradient)]


def _clip(step: Backward) -> Gradients:
    low, high = float(step.call.args[1].value), float(step.call.args[2].value)

    def clip_gradient(y: Any, dy: Any) -> Any:
        def element(*i: Any) -> Any:
            inside = [c for c in (_above(y[i], low, y), _below(y[i], high, y)) if c is not None]
            return tirx.Select(tirx.all(*inside), dy[i], constant_like(0.0, dy)) if inside else dy[i]

        return te.compute(y.shape, element)

    return [step.emit_te(clip_gradient, step.outputs[0], step.output_gradient), None, None]


def _above(value: Any, bound: float, like: Any) -> Any:
    return None if math.isinf(bound) else value > constant_like(bound, like)


def _below(value: Any, bound: float, like: Any) -> Any:
    return None if math.isinf(bound) else value < constant_like(bound, like)


ACTIVATION_RULES: Mapping[str, Rule] = {
    "relax.nn.relu": Rule(backward=_relu),
    "relax.clip": Rule(backward=_clip),
}
