"""Trained values back into the ONNX file they came from, wherever the exporter or a quantiser keeps a weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from edgetrain.errors import UnsupportedError
from edgetrain.model.model import Array

# Nodes that hold a weight by themselves: as a `Constant` they hold the trained one.
_HOLDERS = ("Constant", "DequantizeLinear")


def write_weights(proto: Any, values: Mapping[str, Array]) -> None:
    """Replaces the weights named in `values`, in place: initializers, `Constant` nodes and dequantised weights.

    Branches and loop bodies are searched too. A 16-bit initializer stays one; a dequantised weight becomes a float
    constant. Raises `UnsupportedError`, before anything is changed, for a weight that an integer op reads.
    """
    graphs = list(_graphs(proto.graph))
    tensors = {t.name: t for graph in reversed(graphs) for t in graph.initializer if t.name in values}
    nodes = {n.output[0]: n for graph in graphs for n in graph.node if n.op_type in _HOLDERS and n.output[0] in values}
    whole = sorted(n for n, t in tensors.items() if numpy_helper.to_array(t).dtype.kind not in "fV")
    lost = sorted(set(values) - set(tensors) - set(nodes))
    if whole or lost:
        raise UnsupportedError(
            f"{len(whole) + len(lost)} trained weights have no place in the file: {', '.join((whole + lost)[:3])}",
            why="integer ops read them, which cannot take floating point weights"
            if whole
            else "nothing has their name",
            fix="train the model from before it was quantised, or freeze these weights (update.names)",
        )
    for name, tensor in tensors.items():
        dtype = numpy_helper.to_array(tensor).dtype
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(values[name]).astype(dtype), name))
    for name, node in nodes.items():
        node.op_type = "Constant"
        del node.input[:]
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(values[name], name)))


def _graphs(graph: Any) -> Iterator[Any]:
    """The graph, then those of its branches and bodies."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
