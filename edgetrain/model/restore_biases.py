"""Biases that PyTorch's exporter left out because they were zero, as those of an untrained model often are.

Its optimizer leaves them out (`RemoveOptionalBiasFromConv` and the like) and writes that down at the node, beside the
call that the node came from. In the module they are parameters, which training moves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgetrain.model.tensor_uses import GraphIndex

_RULES, _CALL = "pkg.onnxscript.rewriter.rule_name", "pkg.torch.onnx.fx_node"
_BIAS = re.compile(r"%p_(\w*bias)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The model, rewritten where a bias was missing, and a line on it."""

    model: Any
    rewrites: tuple[str, ...] = ()


def restore_biases(proto: Any) -> Restored:
    """A copy with a bias of zeros wherever the exporter says that it removed one."""
    if not any(_lost_bias(node) for node in proto.graph.node):
        return Restored(model=proto)
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    index = GraphIndex(model)
    names = []
    for node in model.graph.node:
        lost, weight = _lost_bias(node), index.stored.get(node.input[1]) if len(node.input) > 1 else None
        if not lost or weight is None:
            continue
        name = _name(lost, index.module_of(node) or "")
        if name in index.stored:
            name = f"{node.output[0]}.bias"
        zeros = np.zeros(_outputs(node, weight), numpy_helper.to_array(weight).dtype)
        stored = model.graph.initializer.add()
        stored.CopyFrom(numpy_helper.from_array(zeros, name))
        index.stored[name] = stored
        node.input.append(name)
        names.append(name)
    return Restored(model=model, rewrites=(f"zero biases that the exporter left out: {', '.join(names)}",))


def _lost_bias(node: Any) -> str:
    """How the exporter calls the bias that it removed: dots are underscores. Empty where it removed none."""
    found = {entry.key: entry.value for entry in node.metadata_props}
    rules = found.get(_RULES, "")
    if len(node.input) != 2 or "RemoveOptionalBias" not in rules or "FuseBatchNorm" in rules:
        return ""
    match = _BIAS.search(found.get(_CALL, ""))
    return match[1] if match is not None else ""


def _name(lost: str, module: str) -> str:
    """`head.bias` of `head_bias` in the module `head`."""
    prefix = f"{module.replace('.', '_')}_"
    return f"{module}.{lost.removeprefix(prefix)}" if module and lost.startswith(prefix) else lost


def _outputs(node: Any, weight: Any) -> int:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "ConvTranspose":
        return int(weight.dims[1]) * int(attributes.get("group", 1))
    is_turned = node.op_type == "Gemm" and not attributes.get("transB", 0)
    return int(weight.dims[1] if is_turned else weight.dims[0])
