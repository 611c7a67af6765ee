"""Activations. Where the sign of the output tells the branch, the input need not be kept for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import relax, shape_of, te, tirx
from edgetrain.graph.gradients.pointwise import from_input, from_output, number, scale_gradient
from edgetrain.graph.gradients.rule import Backward, Gradients, Rule

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_GAMMA = 1.0507009873554804934193349852946
_GELU_CUBIC = 0.044715  # Hendrycks and Gimpel's approximation


def _relu(step: Backward) -> Gradients:
    def relu_gradient(y: Any, dy: Any) -> Any:
        # Select, not if_then_else: both sides are safe to evaluate, and vectorised lanes differ.
        return te.compute(y.shape, lambda *i: tirx.Select(y[i] > number(0.0, y[i]), dy[i], number(0.0, dy[i])))

    return [step.emit_te(relu_gradient, step.outputs[0], step.output_gradient)]


def _clip(step: Backward) -> Gradients:
    low, high = float(step.call.args[1].value), float(step.call.args[2].value)

    def clip_gradient(y: Any, dy: Any) -> Any:
        def element(*i: Any) -> Any:
            above = [] if math.isinf(low) else [y[i] > number(low, y[i])]
            below = [] if math.isinf(high) else [y[i] < number(high, y[i])]
            inside = above + below
            return tirx.Select(tirx.all(*inside), dy[i], number(0.0, dy[i])) if inside else dy[i]

        return te.compute(y.shape, element)

    return [step.emit_te(clip_gradient, step.outputs[0], step.output_gradient), None, None]


def _leakyrelu(step: Backward) -> Gradients:
    alpha = float(step.attributes.alpha)
    # With a positive slope the output has the input's sign, and the output is what a neighbour keeps anyway.
    kept = step.outputs[0] if alpha > 0 else step.inputs[0]
    return [scale_gradient(step, "leakyrelu", lambda v: _branch(v, number(1.0, v), number(alpha, v)), kept)]


def _branch(value: Any, positive: Any, otherwise: Any) -> Any:
    return tirx.Select(value > number(0.0, value), positive, otherwise)


def _selu_slope(y: Any) -> Any:
    """γ above 0, else γ·α·eˣ, which is y + γ·α."""
    return _branch(y, number(_SELU_GAMMA, y), y + number(_SELU_GAMMA * _SELU_ALPHA, y))


def _softplus(step: Backward) -> Gradients:
    beta, threshold = float(step.attributes.beta), float(step.attributes.threshold)

    def slope(x: Any) -> Any:
        scaled = x * number(beta, x)
        return tirx.Select(scaled > number(threshold, x), number(1.0, x), tirx.sigmoid(scaled))

    return [scale_gradient(step, "softplus", slope, step.inputs[0])]


def _silu_slope(x: Any) -> Any:
    s = tirx.sigmoid(x)
    return s * (number(1.0, x) + x * (number(1.0, x) - s))


def _gelu_slope(x: Any) -> Any:
    """Φ(x) + x·φ(x), with the normal distribution's Φ and φ."""
    half, one = number(0.5, x), number(1.0, x)
    cumulative = half * (one + tirx.erf(x * number(math.sqrt(0.5), x)))
    density = number(1.0 / math.sqrt(2.0 * math.pi), x) * tirx.exp(number(-0.5, x) * x * x)
    return cumulative + x * density


def _gelu_tanh_slope(x: Any) -> Any:
    half, one = number(0.5, x), number(1.0, x)
    scale, cubic = number(math.sqrt(2.0 / math.pi), x), number(_GELU_CUBIC, x)
    t = tirx.tanh(scale * (x + cubic * x * x * x))
    inner = scale * (one + number(3.0, x) * cubic * x * x)
    return half * (one + t) + half * x * (one - t * t) * inner


def _prelu(step: Backward) -> Gradients:
    data, alpha = step.inputs
    shape, axis = shape_of(data), int(step.attributes.axis) % len(shape_of(data))
    shared = shape_of(alpha)[0] == 1

    def prelu_data_gradient(x: Any, slopes: Any, dy: Any) -> Any:
        def element(*i: Any) -> Any:
            return _branch(x[i], number(1.0, x[i]), slopes[0 if shared else i[axis]]) * dy[i]

        return te.compute(x.shape, element)

    def prelu_product(x: Any, dy: Any) -> Any:
        return te.compute(x.shape, lambda *i: _branch(x[i], number(0.0, x[i]), x[i]) * dy[i])

    data_gradient = alpha_gradient = None
    if step.wanted[0]:
        data_gradient = step.emit_te(prelu_data_gradient, data, alpha, step.output_gradient)
    if step.wanted[1]:
        product = step.emit_te(prelu_product, data, step.output_gradient)
        axes = [i for i in range(len(shape)) if shared or i != axis]
        total = step.emit(relax.op.sum(product, axes))
        alpha_gradient = step.emit(relax.op.reshape(total, shape_of(alpha)))
    return [data_gradient, alpha_gradient]


# A GELU's slope is so many constants that none of them finds a register beside the sums of a product: fused into one it
# took twice as long as in a kernel of its own.
ACTIVATION_RULES: Mapping[str, Rule] = {
    "relax.clip": Rule(backward=_clip),
    "relax.nn.gelu": from_input("gelu", _gelu_slope, fusible=False),
    "relax.nn.gelu_tanh": from_input("gelu_tanh", _gelu_tanh_slope, fusible=False),
    "relax.nn.leakyrelu": Rule(backward=_leakyrelu),
    "relax.nn.prelu": Rule(backward=_prelu),
    "relax.nn.relu": Rule(backward=_relu),
    "relax.nn.selu": from_output("selu", _selu_slope),
    "relax.nn.silu": from_input("silu", _silu_slope),
    "relax.nn.softplus": Rule(backward=_softplus),
}
