"""Broken ONNX files, made from valid ones: bytes flipped or cut, nodes, attributes, shapes and weights changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

Random = np.random.Generator
Change = Callable[[Any, Random], None]  # of a GraphProto or ModelProto, in place

_EXTREMES = (-(2**62), -(2**31), -7, -1, 0, 1, 2, 3, 17, 2**20, 2**31, 2**62)
_FLOATS = (-1e30, -1.0, 0.0, 1e-30, 0.5, 1e30, float("inf"), float("nan"))
_OPS = (
    "Add", "Cast", "Clip", "Concat", "Conv", "ConvTranspose", "Einsum", "Expand", "Flatten", "GRU", "Gather", "Gemm",
    "If", "LSTM", "LayerNormalization", "Loop", "MatMul", "MaxPool", "NonZero", "OneHot", "Pad", "Range", "ReduceMax",
    "Relu", "Reshape", "Resize", "ScatterND", "Shape", "Slice", "Softmax", "Split", "Squeeze", "Tile", "TopK",
    "Transpose", "Unique", "Unsqueeze", "Where", "NoSuchOp",
)  # fmt: skip


def mutate(model: onnx.ModelProto, seed: int) -> bytes:
    """A broken copy of `model`, serialised; the same seed gives the same bytes."""
    rng = np.random.default_rng(seed)
    if rng.random() < 0.3:
        return _flip_bytes(model.SerializeToString(), rng)
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for _ in range(int(rng.integers(1, 4))):
        names = list(CHANGES)
        CHANGES[names[int(rng.integers(len(names)))]](copy, rng)
    content: bytes = copy.SerializeToString()
    return content


def _flip_bytes(content: bytes, rng: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 9))):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed[: int(rng.integers(1, len(changed) + 1))]) if rng.random() < 0.2 else bytes(changed)


def _pick(items: Sequence[Any], rng: Random) -> Any | None:
    return items[int(rng.integers(len(items)))] if len(items) else None


def _drop_node(model: Any, rng: Random) -> None:
    if model.graph.node:
        del model.graph.node[int(rng.integers(len(model.graph.node)))]


def _repeat_node(model: Any, rng: Random) -> None:
    node = _pick(model.graph.node, rng)
    if node is not None:
        copy = model.graph.node.add()
        copy.CopyFrom(node)
        for i in range(len(copy.output)):
            copy.output[i] += "_again"


def _swap_inputs(model: Any, rng: Random) -> None:
    node = _pick(model.graph.node, rng)
    if node is not None and len(node.input) > 1:
        node.input[:] = list(rng.permutation(list(node.input)))


def _rewire(model: Any, rng: Random) -> None:
    node = _pick(model.graph.node, rng)
    names = [i.name for i in (*model.graph.input, *model.graph.initializer)] + ["", "nowhere"]
    names += [o for n in model.graph.node for o in n.output]
    if node is not None and node.input:
        node.input[int(rng.integers(len(node.input)))] = names[int(rng.integers(len(names)))]


def _drop_input(model: Any, rng: Random) -> None:
    node = _pick(model.graph.node, rng)
    if node is not None and node.input:
        del node.input[int(rng.integers(len(node.input))) :]


def _change_op(model: Any, rng: Random) -> None:
    node = _pick(model.graph.node, rng)
    if node is not None:
        node.op_type = _pick(_OPS, rng)


def _change_attribute(model: Any, rng: Random) -> None:
    node = _pick(model.graph.node, rng)
    attribute = None if node is None else _pick(node.attribute, rng)
    if attribute is None:
        return
    extreme = int(_pick(_EXTREMES, rng) or 0)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = extreme
        case AttributeProto.FLOAT:
            attribute.f = float(_pick(_FLOATS, rng) or 0.0)
        case AttributeProto.STRING:
            attribute.s = b"\xff\xfe" if rng.random() < 0.3 else b"something"
        case AttributeProto.INTS if rng.random() < 0.5 and len(attribute.ints):
            attribute.ints[int(rng.integers(len(attribute.ints)))] = extreme
        case AttributeProto.INTS:
            attribute.ints[:] = list(attribute.ints)[: int(rng.integers(len(attribute.ints) + 1))]
        case _:
            attribute.name = "renamed"


def _drop_attribute(model: Any, rng: Random) -> None:
    node = _pick(model.graph.node, rng)
    if node is not None and node.attribute:
        del node.attribute[int(rng.integers(len(node.attribute)))]


def _change_initializer(model: Any, rng: Random) -> None:
    tensor = _pick(model.graph.initializer, rng)
    if tensor is None:
        return
    choice = rng.random()
    if choice < 0.3 and len(tensor.dims):
        tensor.dims[int(rng.integers(len(tensor.dims)))] = int(_pick(_EXTREMES, rng) or 0)
    elif choice < 0.5:
        tensor.data_type = int(rng.integers(0, 24))
    elif choice < 0.7:
        tensor.raw_data = tensor.raw_data[: int(rng.integers(len(tensor.raw_data) + 1))]
    elif tensor.data_type == TensorProto.INT64 and len(tensor.raw_data) >= 8:
        values = np.frombuffer(tensor.raw_data[: len(tensor.raw_data) // 8 * 8], np.int64).copy()
        values[int(rng.integers(len(values)))] = int(_pick(_EXTREMES, rng) or 0)
        tensor.raw_data = values.tobytes()


def _drop_initializer(model: Any, rng: Random) -> None:
    if model.graph.initializer:
        del model.graph.initializer[int(rng.integers(len(model.graph.initializer)))]


def _change_graph_input(model: Any, rng: Random) -> None:
    value = _pick(model.graph.input, rng)
    if value is None:
        return
    tensor = value.type.tensor_type
    choice = rng.random()
    if choice < 0.3:
        tensor.elem_type = int(rng.integers(0, 24))
    elif choice < 0.8 and tensor.shape.dim:
        tensor.shape.dim[int(rng.integers(len(tensor.shape.dim)))].dim_value = int(_pick(_EXTREMES, rng) or 0)
    elif choice < 0.9:
        tensor.ClearField("shape")
    elif tensor.shape.dim:
        del tensor.shape.dim[0]


def _change_outputs(model: Any, rng: Random) -> None:
    if rng.random() < 0.5 and model.graph.output:
        del model.graph.output[int(rng.integers(len(model.graph.output)))]
    else:
        model.graph.output.append(helper.make_tensor_value_info("elsewhere", TensorProto.FLOAT, None))


def _change_opset(model: Any, rng: Random) -> None:
    if model.opset_import:
        model.opset_import[0].version = int(rng.integers(-1, 30))


CHANGES: Mapping[str, Change] = {
    "change attribute": _change_attribute,
    "change graph input": _change_graph_input,
    "change initializer": _change_initializer,
    "change op": _change_op,
    "change opset": _change_opset,
    "change outputs": _change_outputs,
    "drop attribute": _drop_attribute,
    "drop initializer": _drop_initializer,
    "drop input": _drop_input,
    "drop node": _drop_node,
    "repeat node": _repeat_node,
    "rewire": _rewire,
    "swap inputs": _swap_inputs,
}
