"""BatchNorm while training: on the batch's own statistics (`train`) or on the stored ones (`frozen`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import shape_of, te, tirx
from edgetrain.graph.gradients.rule import Backward, Done, Forward, Gradients, Rule


@dataclass(frozen=True, slots=True)
class _Statistics:
    """What normalised the data: per-channel mean and 1/√(variance + ε)."""

    mean: Any
    deviation_inverse: Any
    from_batch: bool


def _values_per_channel(x: Any) -> int:
    shape = shape_of(x)
    return math.prod(shape) // shape[1]


def channel_sum(name: str, shape: tuple[int, ...], element: Any) -> Any:
    """Σ over all axes but axis 1 of `element(*index)`: one value a channel."""
    axes = [te.reduce_axis((0, extent), f"a{i}") for i, extent in enumerate(shape) if i != 1]

    def total(channel: Any) -> Any:
        return te.sum(element(axes[0], channel, *axes[1:]), axis=axes)

    return te.compute((shape[1],), total, name=name)


def batch_norm_mean(x: Any, *, count: int) -> Any:
    shape = shape_of(x)
    total = channel_sum("batch_norm_sum", shape, lambda *i: x[i])
    return te.compute((shape[1],), lambda c: total[c] / tirx.const(float(count), x.dtype), name="batch_norm_mean")


def batch_norm_variance(x: Any, mean: Any, *, count: int) -> Any:
    shape = shape_of(x)
    squares = channel_sum("batch_norm_squares", shape, lambda *i: (x[i] - mean[i[1]]) * (x[i] - mean[i[1]]))
    return te.compute((shape[1],), lambda c: squares[c] / tirx.const(float(count), x.dtype), name="batch_norm_variance")


def batch_norm_deviation_inverse(variance: Any, *, epsilon: float) -> Any:
    one = tirx.const(1.0, variance.dtype)
    return te.compute(
        variance.shape, lambda c: one / tirx.sqrt(variance[c] + tirx.const(epsilon, variance.dtype)), name="deviation"
    )


def batch_norm_apply(x: Any, mean: Any, deviation_inverse: Any, gamma: Any, beta: Any) -> Any:
    def element(*i: Any) -> Any:
        c = i[1]
        return (x[i] - mean[c]) * (deviation_inverse[c] * gamma[c]) + beta[c]

    return te.compute(x.shape, element, name="batch_norm_apply")


def _forward(step: Forward) -> Done:
    x, gamma, beta, running_mean, running_variance = step.inputs
    count = _values_per_channel(x)
    attributes = step.attributes
    updates: tuple[tuple[Any, Any], ...] = ()
    if not step.training_batchnorm or count < 2:  # one value has no spread: its statistics would erase it
        mean, variance = running_mean, running_variance
    else:
        mean = step.emit_te(batch_norm_mean, x, count=count)
        variance = step.emit_te(batch_norm_variance, x, mean, count=count)
        momentum = float(attributes.momentum)
        unbiased = count / (count - 1)  # PyTorch stores the unbiased variance and normalises with the biased one
        updates = (
            (running_mean, _blend(step, running_mean, mean, momentum, 1.0)),
            (running_variance, _blend(step, running_variance, variance, momentum, unbiased)),
        )
    # Fused, the square root would be taken again for every element instead of once a channel.
    inverse = step.emit_te(batch_norm_deviation_inverse, variance, epsilon=float(attributes.epsilon), fusible=False)
    y = step.emit_te(batch_norm_apply, x, mean, inverse, gamma, beta)
    statistics = _Statistics(mean, inverse, bool(updates))
    return Done(outputs=(y, None, None), residuals=statistics, state_updates=updates)


def _blend(step: Forward, old: Any, new: Any, momentum: float, factor: float) -> Any:
    def running_statistic(stored: Any, fresh: Any) -> Any:
        keep, take = tirx.const(1.0 - momentum, stored.dtype), tirx.const(momentum * factor, stored.dtype)
        return te.compute(stored.shape, lambda c: stored[c] * keep + fresh[c] * take, name="running_statistic")

    return step.emit_te(running_statistic, old, new, fusible=False)


def batch_norm_gamma_gradient(dy: Any, x: Any, mean: Any, deviation_inverse: Any) -> Any:
    """Σ dY · (X − mean) / deviation, per channel."""
    total = channel_sum("batch_norm_product", shape_of(x), lambda *i: dy[i] * (x[i] - mean[i[1]]))
    return te.compute(mean.shape, lambda c: total[c] * deviation_inverse[c], name="batch_norm_gamma_gradient")


def batch_norm_beta_gradient(dy: Any) -> Any:
    return channel_sum("batch_norm_beta_gradient", shape_of(dy), lambda *i: dy[i])


def batch_norm_data_gradient(
    dy: Any, x: Any, mean: Any, inverse: Any, gamma: Any, gamma_gradient: Any, beta_gradient: Any, *, count: int
) -> Any:
    """γ/σ · (dY − mean(dY) − x̂ · mean(dY · x̂)): the batch's own statistics move with the data."""
    share = tirx.const(1.0 / count, x.dtype)

    def element(*i: Any) -> Any:
        c = i[1]
        normal = (x[i] - mean[c]) * inverse[c]
        centred = dy[i] - (beta_gradient[c] + normal * gamma_gradient[c]) * share
        return centred * (gamma[c] * inverse[c])

    return te.compute(x.shape, element, name="batch_norm_data_gradient")


def batch_norm_frozen_data_gradient(dy: Any, inverse: Any, gamma: Any) -> Any:
    return te.compute(dy.shape, lambda *i: dy[i] * (gamma[i[1]] * inverse[i[1]]), name="batch_norm_frozen_gradient")


def _backward(step: Backward) -> Gradients:
    x, gamma, _, _, _ = step.inputs
    statistics: _Statistics = step.residuals
    mean, inverse, dy = statistics.mean, statistics.deviation_inverse, step.output_gradients[0]
    through_statistics = statistics.from_batch and step.wanted[0]
    gamma_gradient = beta_gradient = data_gradient = None
    if step.wanted[1] or through_statistics:
        gamma_gradient = step.emit_te(batch_norm_gamma_gradient, dy, x, mean, inverse)
    if step.wanted[2] or through_statistics:
        beta_gradient = step.emit_te(batch_norm_beta_gradient, dy)
    if through_statistics:
        data_gradient = step.emit_te(
            batch_norm_data_gradient,
            dy,
            x,
            mean,
            inverse,
            gamma,
            gamma_gradient,
            beta_gradient,
            count=_values_per_channel(x),
        )
    elif step.wanted[0]:
        data_gradient = step.emit_te(batch_norm_frozen_data_gradient, dy, inverse, gamma)
    return [data_gradient, gamma_gradient, beta_gradient, None, None]


NORMALISATION_RULES: Mapping[str, Rule] = {"relax.nn.batch_norm": Rule(forward=_forward, backward=_backward)}
