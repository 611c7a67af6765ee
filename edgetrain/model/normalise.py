"""The normalising pass over the ONNX graph: after it, every shape is a number and only real computation is left.

Real exports compute their shapes at run time (Shape → Gather → Concat → Reshape), carry weights in `Constant`
nodes and keep `Dropout` and `Identity` from training. With the batch chosen, all of that is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgetrain.errors import ModelError
from edgetrain.model.load import ONNX_DOMAINS, opset_of
from edgetrain.model.model import Array

MAXIMUM_FOLDED_BYTES = 1 << 22  # larger results stay computed: folding them would bloat the program
_DROPPED = ("Identity", "Dropout")
_SETTINGS: Mapping[str, tuple[int, ...]] = {"Resize": (1, 2), "OneHot": (2,)}  # float inputs that are never trained


@dataclass(frozen=True, kw_only=True)
class NormalGraph:
    """Nodes in topological order, weights, constants and static shapes, without anything left to fold."""

    nodes: tuple[Any, ...]
    weights: Mapping[str, Array]  # floating point initializers with more than one element
    constants: Mapping[str, Array]  # everything else that is known
    inputs: Mapping[str, tuple[int, ...]]
    input_dtypes: Mapping[str, str]
    outputs: tuple[str, ...]
    aliases: Mapping[str, str]  # outputs of dropped nodes -> what they stood for
    opset: int
    rewrites: tuple[str, ...]


def normalise(proto: Any, *, batch: int, shapes: Mapping[str, Sequence[int]] | None = None) -> NormalGraph:
    """Binds the batch and any given input shapes, then folds whatever became known.

    Raises `ModelError` for an input whose shape stays unknown or contradicts `batch`.
    """
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    known = {i.name: numpy_helper.to_array(i) for i in proto.graph.initializer}
    rewrites: list[str] = []
    inputs = _bind_inputs(proto, known, batch, shapes or {})
    inferred = _infer_shapes(proto)
    settings = _settings(proto.graph.node)
    weights = {n: a for n, a in known.items() if _is_weight(a) and n not in settings}
    constants = {n: a for n, a in known.items() if n not in weights}
    aliases: dict[str, str] = {}
    nodes: list[Any] = []
    for node in proto.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = aliases.get(name, name)
        if node.op_type in _DROPPED and node.domain in ONNX_DOMAINS:
            aliases[node.output[0]] = node.input[0]
            rewrites.append(f"{describe(node)} dropped: it does nothing here")
            continue
        folded = _fold(node, constants, inferred, opset_of(proto))
        if folded is None:
            nodes.append(node)
            continue
        for name, value in folded.items():
            learned = node.op_type == "Constant" and _is_weight(value) and name not in settings
            (weights if learned else constants)[name] = value
        if node.op_type != "Constant":
            rewrites.append(f"{describe(node)} folded: its value is known once the batch is {batch}")
    dtypes = {i.name: _dtype(i) for i in proto.graph.input if i.name in inputs}
    outputs = tuple(o.name for o in proto.graph.output)
    kept = _reachable(nodes, [aliases.get(o, o) for o in outputs])
    used = {n for node in kept for n in node.input}
    return NormalGraph(
        nodes=tuple(kept),
        weights={n: a for n, a in weights.items() if n in used},
        constants=constants,
        inputs=inputs,
        input_dtypes=dtypes,
        outputs=outputs,
        aliases=aliases,
        opset=opset_of(proto),
        rewrites=tuple(rewrites),
    )


def describe(node: Any) -> str:
    """How errors and listings name a node: op and name, or its first output where the exporter gave no name."""
    domain = "" if node.domain in ONNX_DOMAINS else f"{node.domain}."
    return f"{domain}{node.op_type} `{node.name or (node.output[0] if node.output else '?')}`"


def _settings(nodes: Sequence[Any]) -> frozenset[str]:
    return frozenset(node.input[i] for node in nodes for i in _SETTINGS.get(node.op_type, ()) if i < len(node.input))


def _is_weight(value: Array) -> bool:
    return bool(np.issubdtype(value.dtype, np.floating)) and value.size > 1


def _dtype(value_info: Any) -> str:
    return str(helper.tensor_dtype_to_np_dtype(value_info.type.tensor_type.elem_type))


def _bind_inputs(
    proto: Any, known: Mapping[str, Array], batch: int, shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    bound: dict[str, tuple[int, ...]] = {}
    problems: list[str] = []
    for value in proto.graph.input:
        if value.name in known:
            continue
        dims = value.type.tensor_type.shape.dim
        given = shapes.get(value.name)
        shape = [int(d.dim_value) if d.HasField("dim_value") else 0 for d in dims]
        if given is not None:
            shape = [int(d) for d in given]
        elif shape and shape[0] == 0:
            shape[0] = batch
        if not value.type.tensor_type.HasField("shape") and given is None:
            problems.append(f"input `{value.name}` has no shape")
        elif any(d <= 0 for d in shape):
            names = [d.dim_param or "?" for d in dims]
            problems.append(f"input `{value.name}` has unknown dimensions {names}")
        elif shape and shape[0] != batch:
            problems.append(f"input `{value.name}` has a fixed batch of {shape[0]}, not {batch}")
        del value.type.tensor_type.shape.dim[:]
        for d in shape:
            value.type.tensor_type.shape.dim.add().dim_value = d
        bound[value.name] = tuple(shape)
    if problems:
        raise ModelError(
            "the model's input shapes are not settled: " + "; ".join(problems),
            why="a training graph is compiled for fixed sizes",
            fix="set `model.inputs.NAME = [...]` in the recipe, set train.batch to the fixed batch, or export the "
            "model with a dynamic first dimension",
        )
    if not bound:
        raise ModelError("the model has no inputs", fix="export the model with its input as a graph input")
    return bound


def _infer_shapes(proto: Any) -> dict[str, tuple[int, ...]]:
    """Static shapes by value name; values with an unknown dimension are left out."""
    for output in proto.graph.output:  # exporters leave stale symbolic output shapes that would win over inference
        output.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception as error:
        raise ModelError(
            "the model's shapes contradict each other",
            why=str(error).strip().splitlines()[0],
            fix="check model.inputs and train.batch against the shapes the model was exported with",
        ) from error
    shapes = {}
    for value in (*proto.graph.value_info, *proto.graph.output, *proto.graph.input):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            shapes[value.name] = tuple(int(d.dim_value) for d in tensor.shape.dim)
    return shapes


def _fold(
    node: Any, constants: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]], opset: int
) -> dict[str, Array] | None:
    """The node's outputs where they are known without running the model, else None."""
    if node.domain not in ONNX_DOMAINS or any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
        return None
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        return {node.output[0]: _known_extent(node, shapes[node.input[0]])}
    if any(name and name not in constants for name in node.input) or node.op_type.startswith("Random"):
        return None
    try:
        graph = helper.make_graph(
            [node],
            "fold",
            [],
            [helper.make_tensor_value_info(o, onnx.TensorProto.UNDEFINED, None) for o in node.output if o],
            [numpy_helper.from_array(constants[n], n) for n in dict.fromkeys(node.input) if n],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        values = ReferenceEvaluator(model).run(None, {})
    except Exception:  # the evaluator does not know the op: it stays, and the importer reports it if it must
        return None
    arrays = [np.asarray(v) for v in values]
    if node.op_type != "Constant" and sum(a.nbytes for a in arrays) > MAXIMUM_FOLDED_BYTES:
        return None
    return dict(zip([o for o in node.output if o], arrays, strict=True))


def _known_extent(node: Any, shape: tuple[int, ...]) -> Array:
    if node.op_type == "Size":
        return np.array(math.prod(shape), dtype=np.int64)
    bounds = {a.name: a.i for a in node.attribute}  # since opset 15 a part of the shape can be asked for
    return np.array(shape[bounds.get("start", 0) : bounds.get("end", len(shape))], dtype=np.int64)


def _reachable(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    return kept[::-1]
