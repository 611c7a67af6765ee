"""Which output of a model is trained: the one that is named, else the first that a gradient can flow through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onnx import TensorProto, helper

from edgetrain.errors import UnsupportedError, UsageError
from edgetrain.model.captured_names import captured_names
from edgetrain.model.load import ONNX_DOMAINS

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
# Results that do not move when what they are made from moves a little: places, comparisons, whole numbers, steps.
_CUTS = frozenset((
    "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil", "Equal",
    "EyeLike", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "IsInf", "IsNaN", "Less", "LessOrEqual",
    "NonMaxSuppression", "NonZero", "Not", "OneHot", "Or", "Round", "Shape", "Sign", "Size", "Xor",
))  # fmt: skip
# Of these, only the listed outputs carry a gradient, and only the listed inputs give one.
_OUTPUTS: Mapping[str, tuple[int, ...]] = {"Dropout": (0,), "MaxPool": (0,), "TopK": (0,), "Unique": (0,)}
_INPUTS: Mapping[str, tuple[int, ...]] = {
    "Clip": (0,),
    "Expand": (0,),
    "Pad": (0,),
    "Reshape": (0,),
    "Resize": (0,),
    "RotaryEmbedding": (0,),
    "Slice": (0,),
    "Tile": (0,),
    "Upsample": (0,),
}


def trained_output(proto: Any, name: str = "") -> str:
    """The output `name`, or without one the first that depends on the data and, differentiably, on a weight.

    Raises `UsageError` for a name that is no output or that no gradient reaches, and `UnsupportedError` where none
    can be chosen. Both name the outputs.
    """
    outputs = [o.name for o in proto.graph.output]
    if name and name not in outputs:
        raise UsageError(
            f"the model has no output `{name}`",
            why=f"its outputs are {_listed(outputs)}",
            fix="set `model.output=NAME` to one of them, or leave it out",
        )
    if len(outputs) <= 1:
        return "".join(outputs)  # whatever keeps it from being trained is found, and named, on the way
    possible = list(_possible(proto.graph))
    if name and name not in possible:
        raise UsageError(
            f"the output `{name}` cannot be trained",
            why="no gradient flows from it to a weight: it consists of indices, comparisons or whole numbers",
            fix=f"set `model.output` to {_listed(possible)}"
            if possible
            else "export the model with its scores as output",
        )
    if not name and not possible:
        raise UnsupportedError(
            "no output of the model can be trained",
            why=f"from none of {_listed(outputs)} does a gradient flow to a weight",
            fix="export the model with its scores (logits) as an output",
        )
    return str(name or possible[0])


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def _possible(graph: Any) -> Iterator[str]:
    carrying = _carrying(graph, frozenset())
    fed = _fed(graph)
    for output in graph.output:
        kind = output.type.tensor_type.elem_type
        if output.name in carrying and output.name in fed and (kind in _FLOATS or kind == TensorProto.UNDEFINED):
            yield output.name


def _fed(graph: Any) -> set[str]:
    """Values that depend on what is fed."""
    found = {i.name for i in graph.input} - {i.name for i in graph.initializer}
    for node in graph.node:
        if found.intersection(node.input) or found.intersection(captured_names(node)):
            found.update(node.output)
    return found


def _carrying(graph: Any, outer: frozenset[str]) -> set[str]:
    """Values of `graph` that a small change of some weight changes a little; `outer` are those it captures."""
    found = set(outer)
    found |= {i.name for i in graph.initializer if i.data_type in _FLOATS and _elements(i.dims) > 1}
    stored = {i.name for i in graph.initializer}
    for node in graph.node:
        if _carries(node, found, stored):
            places = _OUTPUTS.get(node.op_type, range(len(node.output)))
            found.update(node.output[i] for i in places if i < len(node.output) and node.output[i])
        if node.op_type == "Constant":
            stored.update(node.output)
    return found


def _carries(node: Any, found: set[str], stored: set[str]) -> bool:
    if node.op_type == "Constant":
        return any(a.t.data_type in _FLOATS and _elements(a.t.dims) > 1 for a in node.attribute if a.HasField("t"))
    if node.domain in ONNX_DOMAINS:
        if node.op_type in _CUTS or (node.op_type in ("Cast", "CastLike") and not _casts_to_float(node)):
            return False
        if any(_carries_inside(a.g, node, found) for a in node.attribute if a.HasField("g")):
            return True
    read = [node.input[i] for i in _INPUTS.get(node.op_type, range(len(node.input))) if i < len(node.input)]
    # Weights of quantised ops are stored as whole numbers, and trained as what they stand for.
    holds_weights = "Integer" in node.op_type or "Linear" in node.op_type or node.domain not in ONNX_DOMAINS
    return any(n in found or (holds_weights and n in stored) for n in read)


def _carries_inside(body: Any, node: Any, found: set[str]) -> bool:
    """Whether any result of a subgraph carries, where any input of the node may be any input of the subgraph."""
    given = {i.name for i in body.input} if found.intersection(node.input) else set()
    inside = _carrying(body, frozenset(found | given))
    return any(o.name in inside for o in body.output)


def _casts_to_float(node: Any) -> bool:
    targets = [helper.get_attribute_value(a) for a in node.attribute if a.name == "to"]
    return not targets or targets[0] in _FLOATS  # what CastLike casts to is known only while importing


def _elements(dims: Any) -> int:
    count = 1
    for extent in dims:
        count *= int(extent)
    return count
