"""Trained values back into the ONNX file they came from, wherever the exporter or a quantiser keeps a weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from edgetrain.errors import InternalError, UnsupportedError
from edgetrain.model.model import Array
from edgetrain.model.outline import Content, Outline

Value = Callable[[], Array]  # made when it is written, so that not all are in memory at once

# Nodes that hold a weight by themselves: as a `Constant` they hold the trained one.
_HOLDERS = ("Constant", "DequantizeLinear")
_CONTENTS = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_PIECE_BYTES = 1 << 20


def write_weights(outline: Outline, values: Mapping[str, Value]) -> None:
    """Replaces the weights named in `values`, in place: initializers, `Constant` nodes and dequantised weights.

    Branches and loop bodies are searched too. A 16-bit initializer stays one; a dequantised weight becomes a float
    constant. Raises `UnsupportedError`, before anything is changed, for a weight that an integer op reads.
    """
    graphs = list(_graphs(outline.proto.graph))
    tensors = {t.name: t for graph in reversed(graphs) for t in graph.initializer if t.name in values}
    nodes = {n.output[0]: n for graph in graphs for n in graph.node if n.op_type in _HOLDERS and n.output[0] in values}
    whole = sorted(name for name, tensor in tensors.items() if _dtype(tensor).kind not in "fV")
    lost = sorted(set(values) - set(tensors) - set(nodes))
    if whole or lost:
        raise UnsupportedError(
            f"{len(whole) + len(lost)} trained weights have no place in the file: {', '.join((whole + lost)[:3])}",
            why="integer ops read them, which cannot take floating point weights"
            if whole
            else "nothing has their name",
            fix="train the model from before it was quantised, or freeze these weights (update.names)",
        )
    passing = {t.name for t in outline.proto.graph.initializer}
    for name, tensor in tensors.items():
        if name in passing:
            outline.contents[name] = _emptied(tensor, values[name])
        else:  # of a branch or body
            tensor.CopyFrom(numpy_helper.from_array(values[name]().astype(_dtype(tensor)), name))
    for name, node in nodes.items():
        node.op_type = "Constant"
        del node.input[:]
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(values[name](), name)))


def _dtype(tensor: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return dtype


def _emptied(tensor: Any, value: Value) -> Content:
    """Takes the content out of the initializer; what passes in its place is the value in the initializer's type."""
    for field in _CONTENTS:
        tensor.ClearField(field)
    dtype, shape, name = _dtype(tensor), tuple(tensor.dims), str(tensor.name)

    def pieces() -> Iterator[memoryview]:
        array = np.ascontiguousarray(value(), dtype=dtype)
        if array.shape != shape:
            raise InternalError(f"`{name}` has the shape {shape} in the file, and {array.shape} was trained")
        content = array.reshape(-1).view(np.uint8)
        for start in range(0, content.size, _PIECE_BYTES):
            yield content[start : start + _PIECE_BYTES].data

    return Content(nbytes=int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, pieces=pieces)


def _graphs(graph: Any) -> Iterator[Any]:
    """The graph, then those of its branches and bodies."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
