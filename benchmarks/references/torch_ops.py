"""Each ONNX op as a PyTorch function, for the interpreter in `torch_reference`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.references.kinks import KinkWatch
from benchmarks.references.optional_torch import F, Tensor, torch


@dataclass(frozen=True, kw_only=True)
class Node:
    """One ONNX node with its inputs resolved."""

    op: str
    inputs: Sequence[Tensor]  # None for an optional input that was left out
    attributes: Mapping[str, Any]
    training_batchnorm: bool
    kind: Any  # the torch type that floating point values have
    output: str = ""
    watch: KinkWatch | None = None

    def get(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)

    def input(self, index: int) -> Tensor:
        return self.inputs[index] if index < len(self.inputs) else None


def _padded(node: Node, x: Tensor, value: float) -> Tensor:
    """ONNX pads all begins, then all ends; torch the last axis first."""
    if node.get("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET"):
        raise NotImplementedError("auto_pad")
    axes = x.dim() - 2
    pads = node.get("pads", [0] * 2 * axes)
    by_axis = [pads[end * axes + axis] for axis in reversed(range(axes)) for end in (0, 1)]
    return F.pad(x, by_axis, value=value) if any(by_axis) else x


def _conv(node: Node) -> Tensor:
    x, weight = _padded(node, node.inputs[0], 0.0), node.inputs[1]
    axes = x.dim() - 2
    strides, dilations = node.get("strides", [1] * axes), node.get("dilations", [1] * axes)
    convolve = {1: F.conv1d, 2: F.conv2d}[axes]
    return convolve(x, weight, node.input(2), stride=strides, dilation=dilations, groups=node.get("group", 1))


def _batch_normalization(node: Node) -> Tensor:
    x, scale, bias, mean, variance = node.inputs
    return F.batch_norm(
        x,
        mean,
        variance,
        scale,
        bias,
        training=node.training_batchnorm,
        momentum=1.0 - node.get("momentum", 0.9),
        eps=node.get("epsilon", 1e-5),
    )


def _max_pool(node: Node) -> Tensor:
    if node.watch is not None:
        return _watched_max_pool(node, node.watch)
    x = _padded(node, node.inputs[0], float("-inf"))
    axes = x.dim() - 2
    pool = {1: F.max_pool1d, 2: F.max_pool2d}[axes]
    ceil_mode = bool(node.get("ceil_mode", 0))
    return pool(x, node.get("kernel_shape", None), stride=node.get("strides", [1] * axes), ceil_mode=ceil_mode)


def _watched_max_pool(node: Node, watch: KinkWatch) -> Tensor:
    """The kink is where the two largest values of a window are nearly equal. One axis is two, the first of size 1.

    Exactly equal ones are zeros of a ReLU before it, which pass no gradient on.
    """
    x, axes = node.inputs[0], node.inputs[0].dim() - 2
    scale = float(x.detach().square().mean().sqrt())
    padded = _padded(node, x, float("-inf"))
    padded = padded if axes == 2 else padded.unsqueeze(2)
    kernel, strides = ((1,) * (2 - axes) + tuple(node.get(key, None)) for key in ("kernel_shape", "strides"))
    windows = padded.unfold(2, kernel[0], strides[0]).unfold(3, kernel[1], strides[1]).flatten(4)
    values, places = windows.topk(2, dim=-1)
    lead = values[..., 0] - values[..., 1]
    lead = torch.where(lead == 0, torch.full_like(lead, float("inf")), lead)
    takes_first = watch.chosen(node.output, torch.ones_like(lead, dtype=torch.bool), lead, scale)
    place = torch.where(takes_first, places[..., 0], places[..., 1])
    pooled = windows.gather(-1, place.unsqueeze(-1)).squeeze(-1)
    return pooled if axes == 2 else pooled.squeeze(2)


def _relu(node: Node) -> Tensor:
    x = node.inputs[0]
    if node.watch is None:
        return torch.relu(x)
    scale = float(x.detach().square().mean().sqrt())
    return torch.where(node.watch.chosen(node.output, x > 0, x.abs(), scale), x, torch.zeros_like(x))


def _average_pool(node: Node) -> Tensor:
    """Sums and counts on their own, so that padding is left out of both unless the node includes it."""
    x = node.inputs[0]
    counted = torch.ones_like(x)
    kernel, strides = node.get("kernel_shape", None), node.get("strides", [1, 1])
    total = F.avg_pool2d(_padded(node, x, 0.0), kernel, stride=strides)
    return total / F.avg_pool2d(_padded(node, counted, float(node.get("count_include_pad", 0))), kernel, stride=strides)


def _gemm(node: Node) -> Tensor:
    a = node.inputs[0].T if node.get("transA", 0) else node.inputs[0]
    b = node.inputs[1].T if node.get("transB", 0) else node.inputs[1]
    product = node.get("alpha", 1.0) * (a @ b)
    shift = node.input(2)
    return product if shift is None else product + node.get("beta", 1.0) * shift


def _clip(node: Node) -> Tensor:
    x, low, high = node.inputs
    bounded = torch.clamp(x, min=low, max=high)
    if node.watch is None:
        return bounded
    scale = float(x.detach().square().mean().sqrt())
    distance = torch.minimum((x - low).abs(), (x - high).abs())
    is_inside = node.watch.chosen(node.output, (x > low) & (x < high), distance, scale)
    return torch.where(is_inside, x, bounded.detach())


def _flatten(node: Node) -> Tensor:
    x, axis = node.inputs[0], node.get("axis", 1)
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


def _reshape(node: Node) -> Tensor:
    x = node.inputs[0]
    sizes = [int(s) for s in node.inputs[1]]
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(sizes)])


def _layer_normalization(node: Node) -> Tensor:
    x = node.inputs[0]
    shape = x.shape[node.get("axis", -1) :]
    return F.layer_norm(x, shape, node.inputs[1], node.input(2), eps=node.get("epsilon", 1e-5))


def _lstm(node: Node) -> Tensor:
    """Torch's own LSTM on ONNX's weights: the gates input, output, forget, cell come in torch's order."""
    x, stored = node.inputs[0], node.inputs[1:4]
    hidden = node.get("hidden_size", None)
    directions = stored[0].shape[0]
    weights = []
    for direction in range(directions):
        inputs, recurrent, biases = (value[direction] for value in stored)
        weights += [_torch_gates(v, hidden) for v in (inputs, recurrent, *biases.chunk(2))]
    start = x.new_zeros(directions, x.shape[1], hidden)
    every, _, _ = torch.lstm(x, (start, start), weights, True, 1, 0.0, True, directions == 2, False)
    return every.reshape(*x.shape[:2], directions, hidden).transpose(1, 2)


def _torch_gates(value: Tensor, hidden: int) -> Tensor:
    enter, leave, keep, fresh = value.split(hidden)
    return torch.cat([enter, keep, fresh, leave])


def _cast(node: Node) -> Tensor:
    """To a floating point type is to the one that this model computes in."""
    kinds = {
        TensorProto.FLOAT: node.kind,
        TensorProto.INT32: torch.int32,
        TensorProto.INT64: torch.int64,
        TensorProto.BOOL: torch.bool,
    }
    return node.inputs[0].to(kinds[node.get("to", None)])


def _slice(node: Node) -> Tensor:
    x, starts, ends = node.inputs[:3]
    axes = node.input(3) if node.input(3) is not None else range(len(starts))
    steps = node.input(4) if node.input(4) is not None else [1] * len(starts)
    kept = [slice(None)] * x.dim()
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 1:
            raise NotImplementedError("Slice backwards")
        kept[int(axis)] = slice(int(start), int(end), int(step))
    return x[tuple(kept)]


def _pad(node: Node) -> Tensor:
    """All begins, then all ends. What is reflected must be the last axes: torch reflects no others."""
    x, sizes, value = node.inputs[0], [int(size) for size in node.inputs[1]], node.input(2)
    mode = node.get("mode", b"constant").decode()
    by_axis = [sizes[end * x.dim() + axis] for axis in reversed(range(x.dim())) for end in (0, 1)]
    if mode == "constant":
        return F.pad(x, by_axis, value=0.0 if value is None else float(value))
    while len(by_axis) > 2 and by_axis[-2:] == [0, 0]:
        by_axis = by_axis[:-2]
    return F.pad(x, by_axis, mode={"reflect": "reflect", "edge": "replicate"}[mode])


def _extreme(compute: Callable[..., Tensor]) -> Callable[[Node], Tensor]:
    """`amax` or `amin`; without axes over all of them."""

    def reduce(node: Node) -> Tensor:
        x = node.inputs[0]
        axes = node.get("axes", None) if node.input(1) is None else node.inputs[1].tolist()
        return compute(x, tuple(axes or range(x.dim())), bool(node.get("keepdims", 1)))

    return reduce


def _gather(node: Node) -> Tensor:
    x, axis = node.inputs[0], node.get("axis", 0)
    if axis != 0:
        raise NotImplementedError("Gather along another axis than the first")
    return x[node.inputs[1]]


def _unsqueeze(node: Node) -> Tensor:
    x = node.inputs[0]
    for axis in sorted(int(a) for a in node.inputs[1]):
        x = x.unsqueeze(axis)
    return x


def _reduce_mean(node: Node) -> Tensor:
    return node.inputs[0].mean(dim=tuple(node.get("axes", ())), keepdim=bool(node.get("keepdims", 1)))


def _gelu(node: Node) -> Tensor:
    approximate = node.get("approximate", "none")
    return F.gelu(node.inputs[0], approximate=approximate.decode() if isinstance(approximate, bytes) else approximate)


def _unary(compute: Callable[[Tensor], Tensor]) -> Callable[[Node], Tensor]:
    return lambda node: compute(node.inputs[0])


def _binary(compute: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Node], Tensor]:
    return lambda node: compute(node.inputs[0], node.inputs[1])


OPS: Mapping[str, Callable[[Node], Tensor]] = {
    "Add": _binary(lambda a, b: a + b),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda node: torch.cat(list(node.inputs), node.get("axis", None)),
    "Conv": _conv,
    "Div": _binary(lambda a, b: a / b),
    "Equal": _binary(lambda a, b: a == b),
    "Erf": _unary(lambda x: torch.erf(x)),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": _unary(lambda x: x.mean(dim=tuple(range(2, x.dim())), keepdim=True)),
    "Identity": _unary(lambda x: x),
    "LSTM": _lstm,
    "LayerNormalization": _layer_normalization,
    "Log": _unary(lambda x: torch.log(x)),
    "MatMul": _binary(lambda a, b: a @ b),
    "MaxPool": _max_pool,
    "Mul": _binary(lambda a, b: a * b),
    "Neg": _unary(lambda x: -x),
    "Pad": _pad,
    "ReduceMax": _extreme(lambda x, axes, keepdim: torch.amax(x, axes, keepdim)),
    "ReduceMean": _reduce_mean,
    "ReduceMin": _extreme(lambda x, axes, keepdim: torch.amin(x, axes, keepdim)),
    "ReduceSum": lambda node: node.inputs[0].sum(node.inputs[1].tolist(), keepdim=bool(node.get("keepdims", 1))),
    "Relu": _relu,
    "Reshape": _reshape,
    "Shape": _unary(lambda x: torch.tensor(x.shape)),
    "Sigmoid": _unary(lambda x: torch.sigmoid(x)),
    "Slice": _slice,
    "Softmax": lambda node: torch.softmax(node.inputs[0], dim=node.get("axis", -1)),
    "Sqrt": _unary(lambda x: torch.sqrt(x)),
    "Squeeze": lambda node: node.inputs[0].squeeze(tuple(node.inputs[1].tolist())),
    "Sub": _binary(lambda a, b: a - b),
    "Tanh": _unary(lambda x: torch.tanh(x)),
    "Transpose": lambda node: node.inputs[0].permute(node.get("perm", None)),
    "Unsqueeze": _unsqueeze,
    "Where": lambda node: torch.where(*node.inputs),
}
