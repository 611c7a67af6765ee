"""A classifier's head for another number of classes: found from the output back, or by its name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgetrain.errors import ModelError
from edgetrain.model.model import Array

_DENSE = ("MatMul", "Gemm", "Conv")
# What may stand between the head and the output: none of it mixes classes with anything but each other.
_AFTER_HEAD = frozenset({"Identity", "Cast", "Dropout", "Softmax", "LogSoftmax", "Sigmoid"})
_LAYOUT = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_POOLING = frozenset({"GlobalAveragePool", "GlobalMaxPool", "AveragePool", "MaxPool", "ReduceMean"})
# Only before a pooling: a head that ends in one of these puts out no class scores.
_BEFORE_POOLING = frozenset({"Relu", "Clip", "HardSwish", "LeakyRelu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The node, the stored weight it reads, the axis of that weight that counts outputs, and the stored bias or ""."""

    node: Any
    weight: str
    outputs_axis: int
    bias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSize:
    """The layer that tells classes apart, by the name that people know it by, and its size."""

    name: str
    inputs: int
    outputs: int


def head_size(model: onnx.ModelProto, head: str = "", *, output: str = "") -> HeadSize:
    """The layer that `replace_head` would replace. Needs no weights, only their shapes.

    Raises `ModelError` where there is none.
    """
    graph = model.graph
    found, _ = _find(graph, head, output)
    _require_own(graph, found)
    shape = _shape(graph, found.weight)
    _require_sizes(found, shape)
    outputs = shape[found.outputs_axis]
    name = found.weight.removesuffix(".weight") if found.weight.endswith(".weight") else found.node.name
    return HeadSize(name=name or found.node.output[0], inputs=math.prod(shape) // outputs, outputs=outputs)


def replace_head(
    model: onnx.ModelProto, classes: int, seed: int, head: str = "", *, output: str = ""
) -> onnx.ModelProto:
    """A copy of a classifier whose head has `classes` outputs and new weights, drawn from `seed`.

    The head is the last MatMul, Gemm or convolution whose result reaches `output` (empty: the model's first) through
    nothing but a bias, elementwise nodes, poolings and changes of layout; or the one that `head` names: a node, its
    output or its weight. New weights have the variance 1 / inputs, the new bias is 0.
    Raises `ModelError` where there is no such layer, where its weight is not its own and stored in the file, and where
    what follows does not fit another number of classes.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    found, position = _find(graph, head, output)
    old_classes = _replace_weights(graph, found, classes, seed)
    downstream = _downstream(graph, found.node)
    for node in downstream:
        if node.op_type == "Reshape":
            _resize(graph, node, old_classes, classes)
    values = {name for node in (found.node, *downstream) for name in node.output}
    stale = {*values, found.weight, found.bias, found.node.input[1]}  # what tells the old number of classes
    kept = [info for info in graph.value_info if info.name not in stale]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for stale_output in (o for o in graph.output if o.name in values):
        for dim in stale_output.type.tensor_type.shape.dim[1:]:
            if dim.dim_value == old_classes:
                dim.dim_value = classes
    _check(result, found, classes, position)
    return result


def _find(graph: Any, head: str, output: str) -> tuple[_Head, int]:
    """The head, and the position of the output whose classes it tells apart."""
    if not graph.output:
        raise ModelError("the model has no outputs", fix="export the model with its result as a graph output")
    position = next((i for i, o in enumerate(graph.output) if o.name == output), 0)
    return _describe(graph, _named(graph, head) if head else _search(graph, graph.output[position].name)), position


def _search(graph: Any, output: str) -> Any:
    producers = {output: node for node in graph.node for output in node.output}
    stored = _stored_names(graph)
    name, has_bias, is_pooled = output, False, False
    passed: set[str] = set()
    while (node := producers.get(name)) is not None:
        if not node.input or name in passed:  # a graph that nothing has checked may read its own results
            break
        passed.add(name)
        if _is_dense(node):
            return node
        constants = [value for value in node.input if value in stored]
        if node.op_type == "Add" and len(constants) == 1 and not has_bias:
            has_bias = True
            name = next(value for value in node.input if value not in constants)
        elif node.op_type in _AFTER_HEAD | _LAYOUT | _POOLING or (is_pooled and node.op_type in _BEFORE_POOLING):
            is_pooled |= node.op_type in _POOLING
            name = node.input[0]
        else:
            break
    raise ModelError(
        f"the model has no dense layer at its output `{output}` to replace",
        why=f"`{name}` comes from {node.op_type if node is not None else 'an input'}, not from MatMul, Gemm or Conv",
        fix="name the layer with `model.head`, leave out `model.classes`, or export the model with a dense layer at "
        "the end",
    )


def _is_dense(node: Any) -> bool:
    """With all that it needs: in a model with an op that ONNX does not know, nothing has checked that."""
    return node.op_type in _DENSE and len(node.input) >= 2 and bool(node.output)


def _named(graph: Any, name: str) -> Any:
    matching = [n for n in graph.node if name == n.name or name in n.output or name in n.input[1:2]]
    for node in matching:
        if _is_dense(node):
            return node
    known = [n.name or n.output[0] for n in graph.node if _is_dense(n)]
    raise ModelError(
        f"there is no layer `{name}` that could be the head",
        why=f"`{name}` is {matching[0].op_type}" if matching else "no node, value or weight has that name",
        fix=f"set `model.head` to a MatMul, Gemm or Conv; the last ones are {', '.join(known[-3:])}",
    )


def _stored_names(graph: Any) -> frozenset[str]:
    constants = (name for n in graph.node if n.op_type == "Constant" for name in n.output)
    return frozenset({*(t.name for t in graph.initializer), *constants})


def _describe(graph: Any, node: Any) -> _Head:
    """Where the head's parameters are. Exporters also write MatMul(x, Transpose(weight)), and a bias as Add."""
    producers = {output: n for n in graph.node for output in n.output}
    weight = node.input[1]
    is_flipped = False
    if (source := producers.get(weight)) is not None and source.op_type == "Transpose" and source.input:
        weight, is_flipped = source.input[0], True
    outputs_first = node.op_type == "Conv" or is_flipped ^ bool(_attribute(node, "transB", 0))
    if node.op_type == "Conv" and _attribute(node, "group", 1) != 1:
        raise ModelError(
            f"the head `{node.name or node.output[0]}` cannot be replaced",
            why=f"it is a convolution in {_attribute(node, 'group', 1)} groups",
            fix="name another layer with `model.head`",
        )
    bias = node.input[2] if len(node.input) > 2 else ""
    if node.op_type == "MatMul":
        stored = _stored_names(graph)
        sums = [n for n in graph.node if n.op_type == "Add" and node.output[0] in n.input]
        bias = next((v for n in sums for v in n.input if v in stored), "")
    return _Head(node=node, weight=weight, outputs_axis=0 if outputs_first else 1, bias=bias)


def _attribute(node: Any, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _replace_weights(graph: Any, head: _Head, classes: int, seed: int) -> int:
    """Writes the new parameters; returns the old number of classes."""
    _require_own(graph, head)
    old = _read(graph, head.weight)
    _require_sizes(head, old.shape)
    axis = head.outputs_axis
    features = old.shape[:axis] + old.shape[axis + 1 :]
    fresh = np.random.Generator(np.random.PCG64(seed)).standard_normal((classes, *features))
    fresh *= (math.prod(features) or 1) ** -0.5
    _write(graph, head.weight, np.moveaxis(fresh, 0, axis).astype(old.dtype))
    if head.bias:
        shift = _read(graph, head.bias)
        _write(graph, head.bias, np.zeros((*shift.shape[:-1], classes) if shift.ndim else (classes,), shift.dtype))
    return int(old.shape[axis])


def _require_own(graph: Any, head: _Head) -> None:
    """Raises `ModelError` where a parameter of the head is not stored, or read by another node too."""
    users = [name for node in graph.node for name in node.input]
    for name in (head.weight, head.bias) if head.bias else (head.weight,):
        if name not in _stored_names(graph) or users.count(name) != 1:
            raise ModelError(
                f"the head `{head.node.name or head.node.output[0]}` cannot be replaced",
                why=f"`{name}` is computed or shared, not a stored parameter of the head alone",
                fix="leave out `model.classes`, or export the model with a dense layer of its own at the end",
            )


def _require_sizes(head: _Head, shape: Sequence[int]) -> None:
    """Raises `ModelError` for a weight that is no matrix or filter: nothing in it counts outputs."""
    if len(shape) < 2 or min(shape) < 1:
        raise ModelError(
            f"the head `{head.node.name or head.node.output[0]}` cannot be replaced",
            why=f"its weight `{head.weight}` has the shape {list(shape)}",
            fix="leave out `model.classes`, or name another layer with `model.head`",
        )


def _shape(graph: Any, name: str) -> tuple[int, ...]:
    """Of a stored tensor, whose values may lie in another file."""
    return tuple(int(d) for d in _stored(graph, name).dims)


def _read(graph: Any, name: str) -> Array:
    try:
        return np.asarray(numpy_helper.to_array(_stored(graph, name)))
    except (ValueError, TypeError, KeyError) as error:  # bytes that do not make the shape, types that are none
        raise ModelError(
            f"the tensor `{name}` of the model cannot be read", why=_first_line(error), fix="export the model again"
        ) from error


def _stored(graph: Any, name: str) -> Any:
    """The tensor with its values, or where they are. Raises `ModelError` for a constant that is no tensor."""
    found = next((t for t in graph.initializer if t.name == name), None)
    if found is None:
        found = _attribute(next(n for n in graph.node if name in n.output), "value", None)
    if not isinstance(found, onnx.TensorProto):
        raise ModelError(f"the constant `{name}` of the model is no tensor", fix="export the model again")
    return found


def _write(graph: Any, name: str, value: Array) -> None:
    fresh = numpy_helper.from_array(np.ascontiguousarray(value), name)
    for tensor in graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(fresh)
            return
    node = next(n for n in graph.node if name in n.output)
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("value", fresh))


def _downstream(graph: Any, head: Any) -> list[Any]:
    """Every node that the head's result reaches, in order."""
    reached = set(head.output)

    def walk() -> Iterator[Any]:
        for node in graph.node:
            if reached.intersection(node.input):
                reached.update(node.output)
                yield node

    return list(walk())


def _resize(graph: Any, reshape: Any, old_classes: int, classes: int) -> None:
    """A Reshape to a constant shape names the old number of classes; it gets a shape of its own."""
    if len(reshape.input) < 2 or reshape.input[1] not in _stored_names(graph):
        return
    shape = _read(graph, reshape.input[1])
    if old_classes not in shape[1:]:
        return
    sizes = np.array([shape[0], *(classes if s == old_classes else s for s in shape[1:])], np.int64)
    name = f"{reshape.output[0]}.shape_of_{classes}_classes"
    graph.initializer.append(numpy_helper.from_array(sizes, name))
    reshape.input[1] = name


def _check(model: onnx.ModelProto, head: _Head, classes: int, position: int) -> None:
    """Whether the shapes behind the head still fit, and the classes arrive at the output in that position."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:  # its own, and whatever its C++ does not catch in files that are broken
        raise ModelError(
            f"the head `{head.node.name or head.node.output[0]}` cannot have {classes} classes",
            why=_first_line(error),
            fix="name the last layer of the model with `model.head`",
        ) from error
    dims = inferred.graph.output[position].type.tensor_type.shape.dim
    known = [d.dim_value for d in dims[1:] if d.HasField("dim_value")]
    if len(known) == len(dims) - 1 and classes not in known:
        raise ModelError(
            f"the head `{head.node.name or head.node.output[0]}` does not decide the number of classes",
            why=f"with {classes} outputs the model's output has the sizes {known}",
            fix="name the layer whose outputs are the classes with `model.head`",
        )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
