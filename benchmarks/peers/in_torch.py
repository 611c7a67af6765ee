"""The step in PyTorch, eager or compiled: the functions that a person would write for the same model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 the name everybody knows

from benchmarks.peers.protocol import LABELS, CannotError, Job, Step
from benchmarks.peers.step_graph import FLOATING, Node, StepGraph, read_step_graph, symmetric_pads

Tensor = Any  # torch.Tensor: torch is not there when types are checked
Call = Callable[..., Tensor]

VERSION = f"torch {torch.__version__}"


def _conv(node: Node) -> Call:
    get = node.attributes.get
    axes = len(get("kernel_shape", ()))
    begins, ends = symmetric_pads(node, axes)
    convolve = {1: F.conv1d, 2: F.conv2d}[axes]
    strides, dilations, groups = get("strides", [1] * axes), get("dilations", [1] * axes), get("group", 1)
    if begins == ends:
        return lambda x, w, b=None: convolve(x, w, b, stride=strides, padding=begins, dilation=dilations, groups=groups)
    around = [pad for axis in reversed(range(axes)) for pad in (begins[axis], ends[axis])]
    return lambda x, w, b=None: convolve(F.pad(x, around), w, b, stride=strides, dilation=dilations, groups=groups)


def _batch_norm(node: Node) -> Call:
    momentum, epsilon = 1.0 - node.attributes.get("momentum", 0.9), node.attributes.get("epsilon", 1e-5)
    return lambda x, scale, bias, mean, variance: F.batch_norm(
        x, mean, variance, scale, bias, training=True, momentum=momentum, eps=epsilon
    )


def _max_pool(node: Node) -> Call:
    get = node.attributes.get
    axes = len(get("kernel_shape", ()))
    begins, ends = symmetric_pads(node, axes)
    if begins != ends:
        raise NotImplementedError(f"uneven padding of {node.output}")
    pool = {1: F.max_pool1d, 2: F.max_pool2d}[axes]
    size, strides, ceil_mode = get("kernel_shape", ()), get("strides", [1] * axes), bool(get("ceil_mode", 0))
    return lambda x: pool(x, size, stride=strides, padding=begins, ceil_mode=ceil_mode)


def _gemm(node: Node) -> Call:
    get = node.attributes.get
    if (get("alpha", 1.0), get("beta", 1.0), get("transA", 0)) != (1.0, 1.0, 0):
        raise NotImplementedError(f"Gemm {node.output}")
    if get("transB", 0):
        return lambda x, w, b=None: F.linear(x, w, b)
    return lambda x, w, b=None: F.linear(x, w.T, b)


def _attention(node: Node) -> Call:
    scale = node.attributes["scale"]
    return lambda q, k, v, mask: F.scaled_dot_product_attention(q, k.transpose(-1, -2), v, attn_mask=mask, scale=scale)


def _layer_norm(node: Node) -> Call:
    epsilon = node.attributes.get("epsilon", 1e-5)
    return lambda x, scale, bias: F.layer_norm(x, scale.shape, scale, bias, eps=epsilon)


def _reduce(name: str) -> Callable[[Node], Call]:
    def make(node: Node) -> Call:
        keep = bool(node.attributes.get("keepdims", 1))
        axes = node.attributes.get("axes", ())
        return lambda x, given=None: getattr(x, name)(dim=tuple(given or axes), keepdim=keep)

    return make


def _cast(node: Node) -> Call:
    kind = torch.float32 if node.attributes["to"] in FLOATING else torch.int64
    return lambda x: x.to(kind)


def _slice(node: Node) -> Call:
    def cut(x: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None) -> Tensor:
        kept = [slice(None)] * x.dim()
        for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
            kept[axis] = slice(start, end)
        return x[tuple(kept)]

    return cut


def _unsqueeze(node: Node) -> Call:
    def widen(x: Tensor, axes: Sequence[int]) -> Tensor:
        for axis in sorted(axes):
            x = x.unsqueeze(axis)
        return x

    return widen


def _simple(compute: Call) -> Callable[[Node], Call]:
    return lambda _node: compute


_CALLS: Mapping[str, Callable[[Node], Call]] = {
    "Add": _simple(lambda a, b: a + b),
    "Attention": _attention,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _simple(lambda x, low, high: F.hardtanh(x, low, high)),
    "Conv": _conv,
    "Div": _simple(lambda a, b: a / b),
    "Flatten": _simple(lambda x: x.flatten(1)),
    "Gather": _simple(lambda table, indices: F.embedding(indices, table)),
    "Gelu": _simple(lambda x: F.gelu(x)),
    "Gemm": _gemm,
    "GlobalAveragePool": _simple(lambda x: F.adaptive_avg_pool2d(x, 1)),
    "LayerNormalization": _layer_norm,
    "Linear": _simple(lambda x, w, b: torch.addmm(b, x.flatten(0, -2), w).unflatten(0, x.shape[:-1])),
    "MatMul": _simple(lambda a, b: a @ b),
    "MaxPool": _max_pool,
    "Mul": _simple(lambda a, b: a * b),
    "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"),
    "Relu": _simple(lambda x: F.relu(x)),
    "Reshape": _simple(lambda x, shape: x.reshape([x.shape[i] if s == 0 else s for i, s in enumerate(shape)])),
    "Slice": _slice,
    "Softmax": lambda node: lambda x: F.softmax(x, dim=node.attributes.get("axis", -1)),
    "Sub": _simple(lambda a, b: a - b),
    "Transpose": lambda node: lambda x: x.permute(tuple(node.attributes["perm"])),
    "Unsqueeze": _unsqueeze,
}


def _forward(graph: StepGraph) -> Callable[[Mapping[str, Tensor], Sequence[Tensor]], Tensor]:
    """The output as a function of stored tensors and inputs; calls are looked up once."""
    if unknown := {node.op for node in graph.nodes if node.op not in _CALLS}:
        raise CannotError(f"the translator has no {', '.join(sorted(unknown))}")
    calls = [(_CALLS[node.op](node), node.inputs, node.output) for node in graph.nodes]

    def forward(stored: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> Tensor:
        values = {**graph.constants, **stored, **dict(zip(graph.inputs, inputs, strict=True))}
        for call, names, output in calls:
            values[output] = call(*[values[name] for name in names])
        return values[graph.output]

    return forward


@cache
def _translated(job: Job) -> tuple[StepGraph, Callable[..., Tensor]]:
    """Once a process: what is compiled for a job stays."""
    graph = read_step_graph(job.path)
    forward = _forward(graph)
    return graph, torch.compile(forward) if job.peer == "torch-compile" else forward


def build(job: Job) -> Step:
    """A step in eager mode, or with the model compiled by `torch.compile` where that is the peer asked for."""
    torch.set_num_threads(job.threads)
    graph, forward = _translated(job)
    learned = {name: torch.nn.Parameter(torch.from_numpy(value)) for name, value in job.values(graph.parameters)}
    statistics = {name: torch.from_numpy(value) for name, value in job.values(graph.statistics)}
    # Torch's quickest: one kernel over all parameters.
    optimizer = torch.optim.SGD(learned.values(), lr=job.learning_rate, momentum=job.momentum, fused=True)
    batch = {name: torch.from_numpy(value) for name, value in job.batch().items()}
    inputs, labels = [batch[name] for name in graph.inputs], batch[LABELS]

    def step() -> float:
        loss = F.cross_entropy(forward({**learned, **statistics}, inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
