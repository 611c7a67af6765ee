"""Weights that a file keeps in `Constant` nodes become stored tensors where several nodes read one.

Only then does it matter: `separate_roles` decides about stored tensors which of their uses are one parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_INPUTS_OF_WEIGHTS = 3  # the last IR version whose files declare their weights as inputs


def store_constants(proto: Any) -> Any:
    """A copy of `proto` where constants of several readers are initializers of the same names, or `proto` itself."""
    shared = _read_often(proto.graph)
    if not shared:
        return proto
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    graph = model.graph
    kept = [node for node in graph.node if node.op_type != "Constant" or node.output[0] not in shared]
    for node, tensor in list(_weights(graph)):
        if node.output[0] in shared:
            stored = graph.initializer.add()
            stored.CopyFrom(tensor)
            stored.name = node.output[0]
            if model.ir_version <= _INPUTS_OF_WEIGHTS:
                graph.input.append(helper.make_tensor_value_info(stored.name, stored.data_type, stored.dims))
    del graph.node[:]
    graph.node.extend(kept)
    return model


def _weights(graph: Any) -> Iterator[tuple[Any, Any]]:
    """The `Constant` nodes that hold floats of more than one element, with their tensors."""
    for node in graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None and value.data_type in _FLOATS and int(np.prod(value.dims)) > 1:
                yield node, value


def _read_often(graph: Any) -> set[str]:
    """The constants that several inputs of nodes are, also by the names that `Identity` nodes give them."""
    named = {node.output[0]: node.output[0] for node, _tensor in _weights(graph)}
    reads: Counter[str] = Counter()
    for node in graph.node:
        for name in node.input:
            if name in named and node.op_type == "Identity":
                named[node.output[0]] = named[name]
            elif name in named:
                reads[named[name]] += 1
    return {name for name, count in reads.items() if count > 1}
