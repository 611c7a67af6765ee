"""BatchNorm folded into the layer before it: fewer ops and tensors, for models whose statistics stay as they are.

γ·(W·x + b − µ) / √(σ² + ε) + β is W′·x + b′ with W′ = W·k and b′ = (b − µ)·k + β, k = γ / √(σ² + ε) for each output.
Training then changes W′ and b′, and the exported model is the folded one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgetrain.model.model import Array

_EPSILON = 1e-5  # ONNX's default


@dataclass(frozen=True, kw_only=True)
class Folded:
    """The rewritten model, and a line for every BatchNorm: folded, or why not."""

    model: onnx.ModelProto
    rewrites: tuple[str, ...]


def fold_batchnorm(model: onnx.ModelProto) -> Folded:
    """A copy of `model` without the BatchNorms that follow a Conv, ConvTranspose or Gemm with stored parameters.

    Outputs are the same up to rounding. A BatchNorm that cannot be folded stays; it is frozen in training.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    index = _Index(result.graph)
    rewrites = []
    for norm in [n for n in result.graph.node if n.op_type == "BatchNormalization"]:
        name = norm.name or norm.output[0]
        problem = _fold(index, norm)
        rewrites.append(f"BatchNormalization `{name}` " + (f"kept: {problem}" if problem else "folded"))
    _drop_unused(result.graph)
    return Folded(model=result, rewrites=tuple(rewrites))


class _Index:
    """A graph with its nodes by output, its stored tensors by name and how often each value is read."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.producers = {output: node for node in graph.node for output in node.output}
        self.stored = {tensor.name: tensor for tensor in graph.initializer}
        self.uses = Counter(name for node in graph.node for name in node.input)
        self.uses.update(output.name for output in graph.output)

    def store(self, name: str, value: Array) -> None:
        """Under a name that is there already the tensor is replaced."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        if name in self.stored:
            self.stored[name].CopyFrom(tensor)
        else:
            self.stored[name] = self.graph.initializer.add()
            self.stored[name].CopyFrom(tensor)


def _fold(index: _Index, norm: Any) -> str:
    """Rewrites the graph, or says why it cannot."""
    stored, uses = index.stored, index.uses
    layer = index.producers.get(norm.input[0])
    if layer is None or layer.op_type not in _OUTPUTS_FIRST:
        return f"it follows {layer.op_type if layer is not None else 'an input'}"
    if uses[norm.input[0]] != 1:
        return "the layer's result is used elsewhere too"
    if any(name for name in norm.output[1:]) or _attribute(norm, "training_mode", 0):
        return "it was exported in training mode"
    if any(n not in stored for n in (*norm.input[1:5], *(n for n in layer.input[1:] if n))):
        return "its parameters or the layer's are computed"
    if layer.op_type == "Gemm" and (_attribute(layer, "alpha", 1.0), _attribute(layer, "beta", 1.0)) != (1.0, 1.0):
        return "the Gemm before it scales its result"
    weight, *bias = [numpy_helper.to_array(stored[n]) for n in layer.input[1:] if n]
    scale, shift, mean, variance = (numpy_helper.to_array(stored[n]).astype(np.float64) for n in norm.input[1:5])
    factor = scale / np.sqrt(variance + _attribute(norm, "epsilon", _EPSILON))
    before = bias[0].astype(np.float64).reshape(-1) if bias else np.zeros_like(mean)
    folded_weight = _scale_outputs(layer, weight.astype(np.float64), factor).astype(weight.dtype)
    folded_bias = np.broadcast_to((before - mean) * factor + shift, mean.shape).astype(weight.dtype)
    _set_parameters(index, layer, folded_weight, folded_bias)
    layer.output[0] = norm.output[0]
    index.producers[norm.output[0]] = layer
    del norm.output[:]  # `_drop_unused` takes it away
    return ""


def _scale_outputs(layer: Any, weight: Array, factor: Array) -> Array:
    if layer.op_type == "ConvTranspose":  # (inputs, outputs of a group, …), the groups one after another
        groups = int(_attribute(layer, "group", 1))
        grouped = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        by_group = factor.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
        return np.asarray((grouped * by_group).reshape(weight.shape))
    outputs_first = _OUTPUTS_FIRST[layer.op_type] or bool(_attribute(layer, "transB", 0))
    return np.asarray(weight * (factor.reshape(-1, *[1] * (weight.ndim - 1)) if outputs_first else factor))


_OUTPUTS_FIRST = {"Conv": True, "ConvTranspose": False, "Gemm": False}


def _set_parameters(index: _Index, layer: Any, weight: Array, bias: Array) -> None:
    """In place where the layer alone uses them, else under a new name."""
    names = [*layer.input[1:], *([""] if len(layer.input) == 2 else [])]
    del layer.input[1:]
    for name, value, part in zip(names, (weight, bias), ("weight", "bias"), strict=True):
        is_own = bool(name) and index.uses[name] == 1
        key = name if is_own else _fresh_name(f"{layer.name or layer.output[0]}.{part}", index)
        index.store(key, value)
        index.uses[key] = 1
        layer.input.append(key)


def _fresh_name(wanted: str, index: _Index) -> str:
    name, count = wanted, 1
    while name in index.stored or name in index.producers or index.uses[name]:
        name, count = f"{wanted}.folded{count}", count + 1
    return name


def _drop_unused(graph: Any) -> None:
    """Folded norms, their parameters, and what the file says about values that are gone."""
    nodes = [n for n in graph.node if n.output]
    made = {name for node in nodes for name in node.output}
    used = {name for node in nodes for name in node.input} | {o.name for o in graph.output}
    stored = {tensor.name for tensor in graph.initializer}
    kept = {
        "node": nodes,
        "initializer": [t for t in graph.initializer if t.name in used],
        "input": [i for i in graph.input if i.name in used or i.name not in stored],
        "value_info": [i for i in graph.value_info if i.name in made],
    }
    for field, values in kept.items():
        del getattr(graph, field)[:]
        getattr(graph, field).extend(values)


def _attribute(node: Any, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)
