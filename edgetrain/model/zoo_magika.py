"""Magika's model of file types (Fratantonio et al. 2024), from the ONNX file inside its pip package.

The file ends in a softmax that its exporter spelled out in six nodes. A loss wants the logits before it, so the graph
is cut there; everything else is as its authors trained it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from edgetrain.errors import ModelError
from edgetrain.model.zoo_weights import MAGIKA

_WEIGHTS = "models/standard_v3_3/model.onnx"
_CLASSES = 214


def magika() -> onnx.ModelProto:
    """The model from `bytes` (batch, 2048), int32, to `logits`. Raises `ModelError` where the package is missing."""
    return cut_softmax(onnx.load(find_weights()), classes=_CLASSES)


def find_weights() -> Path:
    """The model's file inside the installed package, found without importing it."""
    spec = importlib.util.find_spec(MAGIKA.module)
    path = Path(spec.origin).parent / _WEIGHTS if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise ModelError(
            "`zoo:magika` needs a model that is not installed",
            why=f"the Python package `{MAGIKA.name}` (16 MB) holds it; what it depends on is not needed",
            fix=MAGIKA.install,
        )
    return path


def cut_softmax(model: onnx.ModelProto, *, classes: int) -> onnx.ModelProto:
    """A copy that ends before `exp(x − max x) / Σ exp(x − max x)`, its output named `logits`.

    Raises `ModelError` where the graph does not end in such a softmax.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    producers = {output: node for node in graph.node for output in node.output}
    node = producers.get(graph.output[0].name)
    for op in ("Div", "Exp", "Sub"):
        if node is None or node.op_type != op:
            raise ModelError(
                "the model does not end in a softmax",
                why=f"there is no {op} where one belongs",
                fix=MAGIKA.install,
            )
        logits, node = node.input[0], producers.get(node.input[0])
    for other in graph.node:
        for names in (other.input, other.output):
            for i, name in enumerate(names):
                if name == logits:
                    names[i] = "logits"
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes]))
    del graph.value_info[:]
    graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    _drop_unused(graph)
    onnx.checker.check_model(result, full_check=True)
    return result


def _drop_unused(graph: Any) -> None:
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept[::-1])
    graph.initializer.extend(initializers)
