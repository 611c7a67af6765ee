"""The step in JAX on the CPU: forward, backward and update in one compiled function that reuses its buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.peers.protocol import LABELS, CannotError, Job, Step
from benchmarks.peers.step_graph import FLOATING, Node, StepGraph, read_step_graph, symmetric_pads

Value = Any  # a jax.Array, or a plain number or list: jax is not there when types are checked
Call = Callable[..., Value]
Values = dict[str, Value]

VERSION = f"jax {jax.__version__}"
_NORMS = "BatchNormalization"


def _conv(node: Node) -> Call:
    get = node.attributes.get
    axes = len(get("kernel_shape", ()))
    pads = list(zip(*symmetric_pads(node, axes), strict=True))
    strides, dilations, groups = get("strides", [1] * axes), get("dilations", [1] * axes), get("group", 1)

    def convolve(x: Value, weight: Value, bias: Value = None) -> Value:
        y = lax.conv_general_dilated(x, weight, strides, pads, rhs_dilation=dilations, feature_group_count=groups)
        return y if bias is None else y + bias.reshape(1, -1, *[1] * axes)

    return convolve


def _batch_norm(node: Node) -> Call:
    """The normalised value, and what the running statistics become."""
    momentum, epsilon = node.attributes.get("momentum", 0.9), node.attributes.get("epsilon", 1e-5)

    def normalise(x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
        axes, channels = (0, *range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
        batch_mean, batch_variance = jnp.mean(x, axes), jnp.var(x, axes)
        factor = scale * lax.rsqrt(batch_variance + epsilon)
        y = x * factor.reshape(channels) + (bias - batch_mean * factor).reshape(channels)
        count = x.size / x.shape[1]
        unbiased = batch_variance * (count / (count - 1))
        return y, momentum * mean + (1 - momentum) * batch_mean, momentum * variance + (1 - momentum) * unbiased

    return normalise


def _max_pool(node: Node) -> Call:
    get = node.attributes.get
    size = get("kernel_shape", ())
    pads = list(zip(*symmetric_pads(node, len(size)), strict=True))
    window, strides = (1, 1, *size), (1, 1, *get("strides", [1] * len(size)))
    return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, window, strides, [(0, 0), (0, 0), *pads])


def _gemm(node: Node) -> Call:
    get = node.attributes.get
    if (get("alpha", 1.0), get("beta", 1.0), get("transA", 0)) != (1.0, 1.0, 0):
        raise CannotError(f"Gemm {node.output}")
    if get("transB", 0):
        return lambda x, w, b=0.0: x @ w.T + b
    return lambda x, w, b=0.0: x @ w + b


def _attention(node: Node) -> Call:
    scale = node.attributes["scale"]
    return lambda q, k, v, mask: jax.nn.softmax(q @ k * scale + mask, axis=-1) @ v


def _layer_norm(node: Node) -> Call:
    epsilon = node.attributes.get("epsilon", 1e-5)

    def normalise(x: Value, scale: Value, bias: Value) -> Value:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + epsilon) * scale + bias

    return normalise


def _reduce(reduce: Callable[..., Value]) -> Callable[[Node], Call]:
    def make(node: Node) -> Call:
        keep, axes = bool(node.attributes.get("keepdims", 1)), node.attributes.get("axes", ())
        return lambda x, given=None: reduce(x, axis=tuple(given or axes), keepdims=keep)

    return make


def _cast(node: Node) -> Call:
    kind = jnp.float32 if node.attributes["to"] in FLOATING else jnp.int32
    return lambda x: x.astype(kind)


def _slice(_node: Node) -> Call:
    def cut(x: Value, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None) -> Value:
        kept = [slice(None)] * x.ndim
        for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
            kept[axis] = slice(start, end)
        return x[tuple(kept)]

    return cut


def _simple(compute: Call) -> Callable[[Node], Call]:
    return lambda _node: compute


_CALLS: Mapping[str, Callable[[Node], Call]] = {
    "Add": _simple(lambda a, b: a + b),
    "Attention": _attention,
    _NORMS: _batch_norm,
    "Cast": _cast,
    "Clip": _simple(lambda x, low, high: jnp.clip(x, low, high)),
    "Conv": _conv,
    "Div": _simple(lambda a, b: a / b),
    "Flatten": _simple(lambda x: x.reshape(x.shape[0], -1)),
    "Gather": _simple(lambda table, indices: jnp.take(table, indices, axis=0)),
    "Gelu": _simple(lambda x: jax.nn.gelu(x, approximate=False)),
    "Gemm": _gemm,
    "GlobalAveragePool": _simple(lambda x: x.mean(range(2, x.ndim), keepdims=True)),
    "LayerNormalization": _layer_norm,
    "Linear": _simple(lambda x, w, b: x @ w + b),
    "MatMul": _simple(lambda a, b: a @ b),
    "MaxPool": _max_pool,
    "Mul": _simple(lambda a, b: a * b),
    "ReduceMean": _reduce(jnp.mean),
    "ReduceSum": _reduce(jnp.sum),
    "Relu": _simple(jax.nn.relu),
    "Reshape": _simple(lambda x, shape: x.reshape([x.shape[i] if s == 0 else s for i, s in enumerate(shape)])),
    "Slice": _slice,
    "Softmax": lambda node: lambda x: jax.nn.softmax(x, axis=node.attributes.get("axis", -1)),
    "Sub": _simple(lambda a, b: a - b),
    "Transpose": lambda node: lambda x: x.transpose(tuple(node.attributes["perm"])),
    "Unsqueeze": _simple(lambda x, axes: jnp.expand_dims(x, tuple(axes))),
}


def _forward(graph: StepGraph) -> Callable[[Values, Values, Values], tuple[Value, Values]]:
    """The output, and the running statistics after it, as a function of parameters, statistics and inputs."""
    if unknown := {node.op for node in graph.nodes if node.op not in _CALLS}:
        raise CannotError(f"the translator has no {', '.join(sorted(unknown))}")
    calls = [(_CALLS[node.op](node), node) for node in graph.nodes]

    def forward(parameters: Values, statistics: Values, inputs: Values) -> tuple[Value, Values]:
        values = {**graph.constants, **parameters, **statistics, **inputs}
        after = {}
        for call, node in calls:
            found = call(*[values[name] for name in node.inputs])
            if node.op == _NORMS:
                found, after[node.inputs[3]], after[node.inputs[4]] = found
            values[node.output] = found
        return values[graph.output], after

    return forward


@cache
def _compiled(job: Job) -> tuple[StepGraph, Callable[..., tuple[Any, Value]]]:
    """The step as a function of state, inputs and labels; once a process."""
    graph = read_step_graph(job.path)
    forward = _forward(graph)

    def loss_of(parameters: Values, statistics: Values, inputs: Values, labels: Value) -> tuple[Value, Values]:
        logits, after = forward(parameters, statistics, inputs)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -chosen.mean(), after

    def take(state: tuple[Values, Values, Values], inputs: Values, labels: Value) -> tuple[Any, Value]:
        parameters, momenta, statistics = state
        with_gradients = jax.value_and_grad(loss_of, has_aux=True)
        (loss, statistics), gradients = with_gradients(parameters, statistics, inputs, labels)
        momenta = jax.tree.map(lambda m, g: job.momentum * m + g, momenta, gradients)
        parameters = jax.tree.map(lambda p, m: p - job.learning_rate * m, parameters, momenta)
        return (parameters, momenta, statistics), loss

    parameters, statistics = ({n: _like(graph.shapes[n]) for n in s} for s in (graph.parameters, graph.statistics))
    inputs, labels = _inputs(job)
    state = (parameters, parameters, statistics)
    return graph, jax.jit(take, donate_argnums=0).lower(state, inputs, labels).compile()


def build(job: Job) -> Step:
    graph, compiled = _compiled(job)
    parameters, statistics = (
        {name: jnp.asarray(value) for name, value in job.values(names)}
        for names in (graph.parameters, graph.statistics)
    )
    inputs, labels = _inputs(job)
    state: Any = (parameters, {name: jnp.zeros_like(value) for name, value in parameters.items()}, statistics)
    del parameters, statistics

    def step() -> float:
        nonlocal state
        state, loss = compiled(state, inputs, labels)
        jax.block_until_ready(state)
        return float(loss)

    return step


def _inputs(job: Job) -> tuple[Values, Value]:
    """The batch and its labels; whole numbers in JAX's own width."""
    batch = {n: jnp.asarray(v.astype(np.int32) if v.dtype == np.int64 else v) for n, v in job.batch().items()}
    return {name: value for name, value in batch.items() if name != LABELS}, batch[LABELS]


def _like(shape: tuple[int, ...]) -> Value:
    return jax.ShapeDtypeStruct(shape, jnp.float32)
