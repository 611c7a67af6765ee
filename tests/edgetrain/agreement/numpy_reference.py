"""Training in float64 NumPy, written out layer by layer: nothing here is shared with edgetrain.

A layer takes its input and the parameters and returns its output and a function from the output's gradient to the
input's, which also files the gradients of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.references.trained import Array, Batch, Trained
from edgetrain.graph.options import OptimizerOptions, TrainOptions

Floats = npt.NDArray[np.float64]
Values = dict[str, Floats]
Backward = Callable[[Floats, Values], Floats]
Layer = Callable[[Floats, Values], tuple[Floats, Backward]]


def dense(name: str) -> Layer:
    """x · weightᵀ + bias."""

    def layer(x: Floats, p: Values) -> tuple[Floats, Backward]:
        weight = p[f"{name}.weight"]

        def backward(dy: Floats, gradients: Values) -> Floats:
            gradients[f"{name}.weight"] = dy.T @ x
            gradients[f"{name}.bias"] = dy.sum(0)
            return dy @ weight

        return x @ weight.T + p[f"{name}.bias"], backward

    return layer


def convolution(name: str, *, pad: int) -> Layer:
    """Stride 1, with a bias: one product for each tap of the filter."""

    def layer(x: Floats, p: Values) -> tuple[Floats, Backward]:
        weight = p[f"{name}.weight"]
        _, _, rows, columns = weight.shape
        padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        height, width = padded.shape[2] - rows + 1, padded.shape[3] - columns + 1
        taps = [(r, s) for r in range(rows) for s in range(columns)]
        windows = {(r, s): padded[:, :, r : r + height, s : s + width] for r, s in taps}
        y = sum(np.einsum("nchw,kc->nkhw", windows[r, s], weight[:, :, r, s]) for r, s in taps)

        def backward(dy: Floats, gradients: Values) -> Floats:
            weight_gradient, padded_gradient = np.zeros_like(weight), np.zeros_like(padded)
            for r, s in taps:
                weight_gradient[:, :, r, s] = np.einsum("nkhw,nchw->kc", dy, windows[r, s])
                part = np.einsum("nkhw,kc->nchw", dy, weight[:, :, r, s])
                padded_gradient[:, :, r : r + height, s : s + width] += part
            gradients[f"{name}.weight"] = weight_gradient
            gradients[f"{name}.bias"] = dy.sum((0, 2, 3))
            return padded_gradient[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]]

        return np.asarray(y) + p[f"{name}.bias"][:, None, None], backward

    return layer


def add(name: str) -> Layer:
    """Adds a parameter of shape (1, ...) to every sample."""

    def layer(x: Floats, p: Values) -> tuple[Floats, Backward]:
        def backward(dy: Floats, gradients: Values) -> Floats:
            gradients[name] = dy.sum(0, keepdims=True)
            return dy

        return x + p[name], backward

    return layer


def relu(x: Floats, _p: Values) -> tuple[Floats, Backward]:
    return np.maximum(x, 0), lambda dy, _gradients: dy * (x > 0)


def flatten(x: Floats, _p: Values) -> tuple[Floats, Backward]:
    return x.reshape(len(x), -1), lambda dy, _gradients: dy.reshape(x.shape)


def max_pool(*, size: int, pad: int) -> Layer:
    """Windows side by side; the first of several equal maxima takes the gradient."""

    def layer(x: Floats, _p: Values) -> tuple[Floats, Backward]:
        around = ((0, 0), (0, 0), (pad, pad), (pad, pad))
        padded = np.pad(x, around, constant_values=-np.inf)
        n, c, height, width = padded.shape
        tiles = padded.reshape(n, c, height // size, size, width // size, size).swapaxes(3, 4)
        flat = tiles.reshape(n, c, height // size, width // size, size * size)
        winners = flat.argmax(-1)[..., None]  # NumPy's argmax is the first of several

        def backward(dy: Floats, _gradients: Values) -> Floats:
            spread = np.zeros_like(flat)
            np.put_along_axis(spread, winners, dy[..., None], -1)
            whole = spread.reshape(tiles.shape).swapaxes(3, 4).reshape(padded.shape)
            return whole[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]]

        return flat.max(-1), backward

    return layer


def _cross_entropy(output: Floats, labels: Array) -> tuple[float, Floats]:
    shifted = output - output.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    hot = np.eye(output.shape[1])[labels]
    return float(-(hot * log_probabilities).sum() / len(output)), (np.exp(log_probabilities) - hot) / len(output)


def _bce(output: Floats, labels: Array) -> tuple[float, Floats]:
    probability = 1 / (1 + np.exp(-output))
    loss = -(labels * np.log(probability) + (1 - labels) * np.log(1 - probability)).mean()
    return float(loss), (probability - labels) / output.size


def _mse(output: Floats, labels: Array) -> tuple[float, Floats]:
    return float(((output - labels) ** 2).mean()), 2 * (output - labels) / output.size


def _l1(output: Floats, labels: Array) -> tuple[float, Floats]:
    return float(np.abs(output - labels).mean()), np.sign(output - labels) / output.size


LOSSES: Mapping[str, Callable[[Floats, Array], tuple[float, Floats]]] = {
    "cross-entropy": _cross_entropy,
    "bce": _bce,
    "mse": _mse,
    "l1": _l1,
}


def _sgd(p: Floats, g: Floats, state: Values, _step: int, rate: float, options: OptimizerOptions) -> Floats:
    velocity = options.momentum * state.get("velocity", np.zeros_like(p)) + g + options.weight_decay * p
    state["velocity"] = velocity
    return p - rate * velocity


def _adam(p: Floats, g: Floats, state: Values, step: int, rate: float, options: OptimizerOptions) -> Floats:
    if options.kind == "adamw":
        p = p * (1 - rate * options.weight_decay)
    else:
        g = g + options.weight_decay * p
    zero = np.zeros_like(p)
    state["mean"] = options.beta1 * state.get("mean", zero) + (1 - options.beta1) * g
    state["square"] = options.beta2 * state.get("square", zero) + (1 - options.beta2) * g * g
    mean = state["mean"] / (1 - options.beta1**step)
    square = state["square"] / (1 - options.beta2**step)
    return p - rate * mean / (np.sqrt(square) + options.epsilon)


def gradients_of(layers: Sequence[Layer], parameters: Values, batch: Batch, loss: str) -> tuple[float, Values]:
    """The loss of one batch, and its gradient for every parameter."""
    backwards: list[Backward] = []
    value = batch.data.astype(np.float64)
    for layer in layers:
        value, backward = layer(value, parameters)
        backwards.append(backward)
    result, gradient = LOSSES[loss](value, batch.labels)
    gradients: Values = {}
    for backward in reversed(backwards):
        gradient = backward(gradient, gradients)
    return result, gradients


def train_in_numpy(
    layers: Sequence[Layer],
    initial: Mapping[str, Array],
    batches: Sequence[Batch],
    options: TrainOptions,
    *,
    learning_rate: float,
) -> Trained:
    """One step for each batch, every parameter trained. Knows loss, optimizer and clipping of the options."""
    parameters: Values = {n: a.astype(np.float64) for n, a in initial.items()}
    states: dict[str, Values] = {n: {} for n in parameters}
    update = _sgd if options.optimizer.kind == "sgd" else _adam
    losses = []
    for step, batch in enumerate(batches, 1):
        loss, gradients = gradients_of(layers, parameters, batch, options.loss)
        if options.clip_norm > 0:
            norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
            scale = min(1.0, options.clip_norm / (norm + 1e-6))
            gradients = {n: g * scale for n, g in gradients.items()}
        for name, gradient in gradients.items():
            parameters[name] = update(parameters[name], gradient, states[name], step, learning_rate, options.optimizer)
        losses.append(loss)
    return Trained(losses=tuple(losses), initial=dict(initial), final=dict(parameters))
