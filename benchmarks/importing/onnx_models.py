"""Small ONNX graphs that tests write by hand, broken ones included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 8
FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[Any],
    *,
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    stored: Mapping[str, Any] | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """An unchecked model; every input and output is float32, outputs have no shape."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (stored or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def linear(rng: np.random.Generator, x: str, name: str, inputs: int, outputs: int) -> tuple[Any, dict[str, Any]]:
    """A Gemm node `name` and its parameters."""
    weights = {
        f"{name}.weight": rng.standard_normal((outputs, inputs)).astype(np.float32),
        f"{name}.bias": rng.standard_normal(outputs).astype(np.float32),
    }
    return helper.make_node("Gemm", [x, *weights], [name], name=name, transB=1), weights


def mlp(*, layers: Sequence[int] = (4, 5, 3), seed: int = 0) -> onnx.ModelProto:
    """Linear layers `fc0`, `fc1`, … with ReLU between, from `x` to `logits`."""
    rng = np.random.default_rng(seed)
    nodes: list[Any] = []
    stored: dict[str, Any] = {}
    value = "x"
    for i, (inputs, outputs) in enumerate(pairwise(layers)):
        node, weights = linear(rng, value, f"fc{i}", inputs, outputs)
        nodes.append(node)
        stored.update(weights)
        value = f"fc{i}"
        if i < len(layers) - 2:
            nodes.append(helper.make_node("Relu", [value], [f"relu{i}"], name=f"relu{i}"))
            value = f"relu{i}"
    nodes.append(helper.make_node("Identity", [value], ["logits"], name="logits"))
    return model_of(nodes, inputs={"x": ["batch", layers[0]]}, outputs=["logits"], stored=stored)
