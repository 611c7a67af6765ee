"""Nodes that were exported in training mode, in the form that a model is used in.

Training is decided by the recipe: its step uses the batch's statistics where `model.batchnorm` says so. What is written
back must run as it is, so BatchNorm reads its running statistics there, and Dropout drops nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx

_TRAINING_MODE = "training_mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The model, rewritten where something was in training mode, and a line on it."""

    model: Any
    rewrites: tuple[str, ...] = ()


def evaluation_form(proto: Any) -> Evaluated:
    """A copy without training mode. A BatchNorm whose new statistics are read elsewhere stays as it is."""
    if not any(_is_in_training(proto.graph, node) for node in proto.graph.node):
        return Evaluated(model=proto)
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    read = {name for node in model.graph.node for name in node.input}
    norms = dropouts = 0
    for node in [n for n in model.graph.node if _is_in_training(model.graph, n)]:
        if node.op_type == "Dropout":
            del node.input[2:]
            dropouts += 1
            continue
        if not read.isdisjoint(node.output[1:]):
            continue
        given = {output.name for output in model.graph.output}.intersection(node.output[1:])
        _drop_outputs(model.graph, given)
        del node.output[1:]
        kept = [attribute for attribute in node.attribute if attribute.name != _TRAINING_MODE]
        del node.attribute[:]
        node.attribute.extend(kept)
        norms += 1
    changed = [f"{count} {op} nodes" for op, count in (("BatchNormalization", norms), ("Dropout", dropouts)) if count]
    return Evaluated(model=model, rewrites=(f"exported in training mode: {', '.join(changed)}",) if changed else ())


def _drop_outputs(graph: Any, names: set[str]) -> None:
    kept = [output for output in graph.output if output.name not in names]
    del graph.output[:]
    graph.output.extend(kept)


def _is_in_training(graph: Any, node: Any) -> bool:
    if node.op_type == "Dropout":
        return len(node.input) > 2 and bool(node.input[2])
    return node.op_type == "BatchNormalization" and any(a.name == _TRAINING_MODE and a.i for a in node.attribute)
