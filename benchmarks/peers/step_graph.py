"""An ONNX model in the form that the peers translate: a list of nodes, with constants as plain values.

Imports numpy and onnx only: a peer can have its own environment, without edgetrain.

Exporters write some operations as several nodes: a GELU or an attention as five, a product and then its bias. These
are joined into one operation again, because nobody writes a model for a peer in the long form. A peer that ran the
nodes one by one would look slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

LINEAR, GELU, ATTENTION = "Linear", "Gelu", "Attention"  # nodes of our own: several of ONNX's


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One call: names of what it reads, plain attributes, the name of what it writes."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """The forward pass. `parameters` are trained, `statistics` are BatchNorm's: their values come with the job."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    output: str
    parameters: tuple[str, ...]
    statistics: tuple[str, ...]
    constants: Mapping[str, Any]  # plain numbers and lists
    shapes: Mapping[str, tuple[int, ...]]  # of every value


def read_step_graph(path: Path) -> StepGraph:
    """A file whose inputs have fixed shapes. Statistics of BatchNorm aside, each floating point initializer of more
    than one element is a parameter, as edgetrain has it."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(str(path)), strict_mode=True, data_prop=True).graph
    values = {tensor.name: numpy_helper.to_array(tensor).copy() for tensor in graph.initializer}
    shapes = {v.name: _shape(v) for v in (*graph.input, *graph.value_info, *graph.output)}
    shapes |= {name: value.shape for name, value in values.items()}
    nodes = list(_unknown_nodes(graph.node, shapes, values))
    for put_together in (_linear, _gelu, _attention):
        nodes = list(put_together(nodes, values))
    statistics = {name for node in nodes if node.op == "BatchNormalization" for name in node.inputs[3:5]}
    trained = {n for n, v in values.items() if v.dtype.kind == "f" and v.size > 1 and n not in statistics}
    return StepGraph(
        nodes=tuple(nodes),
        inputs=tuple(value.name for value in graph.input if value.name not in values),
        output=graph.output[0].name,
        parameters=tuple(n for n in values if n in trained),
        statistics=tuple(n for n in values if n in statistics),
        constants={n: v.tolist() for n, v in values.items() if n not in trained and n not in statistics},
        shapes=shapes,
    )


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _unknown_nodes(
    nodes: Sequence[onnx.NodeProto], shapes: Mapping[str, tuple[int, ...]], values: dict[str, Array]
) -> Iterator[Node]:
    """The nodes that depend on data; what asks for a shape, or cuts one up, is written into `values`."""
    for node in nodes:
        if node.op_type == "Shape":
            values[node.output[0]] = np.array(shapes[node.input[0]], np.int64)
        elif node.op_type == "Slice" and values.get(node.input[0], np.ones(1)).dtype == np.int64:
            starts, ends = (int(values[name][0]) for name in node.input[1:3])
            values[node.output[0]] = values[node.input[0]][starts:ends]
        else:
            yield Node(op=node.op_type, inputs=tuple(node.input), output=node.output[0], attributes=_attributes(node))


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _readers(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    return readers


def _replaced(nodes: Sequence[Node], found: Mapping[str, Node], absorbed: set[str]) -> Iterator[Node]:
    """The nodes without the absorbed ones; a found node takes the place of the last one it stands for."""
    for node in nodes:
        if node.output in found:
            yield found[node.output]
        elif node.output not in absorbed:
            yield node


def _linear(nodes: Sequence[Node], values: Mapping[str, Array]) -> Iterator[Node]:
    """MatMul with a stored matrix, then Add of a stored vector: `Linear` of x, weight (inputs, outputs), bias."""
    writers, readers = {node.output: node for node in nodes}, _readers(nodes)
    found: dict[str, Node] = {}
    absorbed: set[str] = set()
    for node in nodes:
        if node.op != "Add":
            continue
        for product, bias in (node.inputs, node.inputs[::-1]):
            before = writers.get(product)
            if before is None or before.op != "MatMul" or len(readers[product]) != 1:
                continue
            if np.ndim(values.get(before.inputs[1], 0)) == 2 and np.ndim(values.get(bias, 0)) == 1:
                found[node.output] = Node(op=LINEAR, inputs=(*before.inputs, bias), output=node.output, attributes={})
                absorbed.add(product)
    return _replaced(nodes, found, absorbed)


def _gelu(nodes: Sequence[Node], values: Mapping[str, Array]) -> Iterator[Node]:
    """x · (1 + erf(x / √2)) · ½: Div, Erf, Add, Mul, Mul."""
    readers = _readers(nodes)
    found: dict[str, Node] = {}
    absorbed: set[str] = set()
    for node in nodes:
        chain = _chain(node, ("Div", "Erf", "Add", "Mul", "Mul"), readers)
        if chain is None or node.inputs[0] not in chain[3].inputs:
            continue
        numbers = [np.asarray(values.get(chain[i].inputs[1], np.nan)) for i in (0, 2, 4)]
        if all(np.allclose(*pair) for pair in zip(numbers, (2**0.5, 1.0, 0.5), strict=True)):
            found[chain[-1].output] = Node(
                op=GELU, inputs=node.inputs[:1], output=chain[-1].output, attributes={"approximate": b"none"}
            )
            absorbed |= {link.output for link in chain[:-1]}
    return _replaced(nodes, found, absorbed)


def _attention(nodes: Sequence[Node], values: Mapping[str, Array]) -> Iterator[Node]:
    """softmax(q·kᵀ · scale + mask) · v: MatMul, Mul, Add, Softmax, MatMul. `Attention` of q, kᵀ, v, mask."""
    readers = _readers(nodes)
    found: dict[str, Node] = {}
    absorbed: set[str] = set()
    for node in nodes:
        chain = _chain(node, ("MatMul", "Mul", "Add", "Softmax", "MatMul"), readers)
        if chain is None or np.size(values.get(chain[1].inputs[1], ())) != 1:
            continue
        (mask,) = set(chain[2].inputs) - {chain[1].output}
        found[chain[-1].output] = Node(
            op=ATTENTION,
            inputs=(*node.inputs, chain[-1].inputs[1], mask),
            output=chain[-1].output,
            attributes={"scale": float(values[chain[1].inputs[1]])},
        )
        absorbed |= {link.output for link in chain[:-1]}
    return _replaced(nodes, found, absorbed)


def _chain(first: Node, ops: Sequence[str], readers: Mapping[str, Sequence[Node]]) -> list[Node] | None:
    """The nodes from `first` on, each the only reader of the one before, if they are these ops."""
    chain = [first]
    while chain[-1].op == ops[len(chain) - 1] and len(chain) < len(ops):
        following = readers.get(chain[-1].output, ())
        if len(following) != 1:
            return None
        chain.append(following[0])
    return chain if [node.op for node in chain] == list(ops) else None


def symmetric_pads(node: Node, axes: int) -> tuple[list[int], list[int]]:
    """Padding at the begin and at the end of each axis."""
    if node.attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise NotImplementedError(f"auto_pad of {node.output}")
    pads = list(node.attributes.get("pads", [0] * 2 * axes))
    return pads[:axes], pads[axes:]


FLOATING = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16}


def step_flops(graph: StepGraph) -> int:
    """Arithmetic of the products in one training step: forward, and once more for each factor that has a gradient."""
    has_gradient = set(graph.parameters)
    total = 0
    for node in graph.nodes:
        factors = sum(name in has_gradient for name in node.inputs[:2])
        total += _product_flops(node, graph.shapes) * (1 + factors)
        if has_gradient & set(node.inputs):
            has_gradient.add(node.output)
    return total


def _product_flops(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """A multiplication and an addition for each output element and each step along the sum; 0 for other nodes."""
    written = math.prod(shapes[node.output])
    match node.op:
        case "Conv":
            return 2 * written * math.prod(shapes[node.inputs[1]][1:])
        case "Gemm":
            return 2 * written * shapes[node.inputs[0]][0 if node.attributes.get("transA", 0) else 1]
        case "MatMul" | "Linear":
            return 2 * written * shapes[node.inputs[0]][-1]
        case "Attention":  # rows of q with columns of kᵀ, then those of the scores with v: all have gradients
            *_, rows, depth = shapes[node.inputs[0]]
            return 2 * 2 * math.prod(shapes[node.inputs[0]][:-2]) * rows * depth * shapes[node.inputs[1]][-1]
        case _:
            return 0
