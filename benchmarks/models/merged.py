"""Models as exporters write them that store equal tensors once, beside the same models with a copy for each use."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.models.small_networks import BATCH_NORM_IMAGE, Net


def untrained_batch_norm_cnn() -> onnx.ModelProto:
    """Two BatchNorms as they are before training: scales and variances are ones, shifts and means zeros."""
    net = Net(3)
    x = "image"
    for layer, inputs in enumerate((3, 8)):
        x = net.convolution(x, f"conv{layer}", inputs=inputs, outputs=8, stride=layer + 1)
        x = net.relu(net.batch_norm(x, f"norm{layer}", 8))
    x = net.writer.node("Flatten", [x], "features")
    net.dense(x, "head", inputs=8 * 5 * 5, outputs=6, output="logits")
    proto = net.finish("untrained-cnn", *BATCH_NORM_IMAGE)
    for node in (n for n in proto.graph.node if n.op_type == "BatchNormalization"):
        for position, value in enumerate((1.0, 0.0, 0.0, 1.0), start=1):
            stored = next(t for t in proto.graph.initializer if t.name == node.input[position])
            stored.CopyFrom(numpy_helper.from_array(np.full(8, value, np.float32), stored.name))
    return proto


def merged_by_identity(proto: onnx.ModelProto) -> onnx.ModelProto:
    """As PyTorch's TorchScript exporter writes it: equal initializers become one, and `Identity` names the others."""
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    found.producer_name = "pytorch"
    kept: dict[tuple[object, ...], onnx.TensorProto] = {}
    named = []
    for tensor in found.graph.initializer:
        key = (tensor.data_type, *tensor.dims, numpy_helper.to_array(tensor).tobytes())
        if key in kept:
            named.append(helper.make_node("Identity", [kept[key].name], [tensor.name]))
        else:
            kept[key] = tensor
    _replace(found, list(kept.values()), [*named, *found.graph.node])
    return found


def merged_in_place(proto: onnx.ModelProto) -> onnx.ModelProto:
    """As graph optimizers write it: every node that read an equal initializer reads the one that is left."""
    found = merged_by_identity(proto)
    found.producer_name = ""
    names = {node.output[0]: node.input[0] for node in found.graph.node if node.op_type == "Identity"}
    nodes = [node for node in found.graph.node if node.op_type != "Identity"]
    for node in nodes:
        for position, name in enumerate(node.input):
            node.input[position] = names.get(name, name)
    _replace(found, list(found.graph.initializer), nodes)
    return found


def held_by_constants(proto: onnx.ModelProto) -> onnx.ModelProto:
    """As some exporters write weights: each in a `Constant` node, and none stored."""
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    constants = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in found.graph.initializer]
    _replace(found, [], [*constants, *found.graph.node])
    return found


def _replace(proto: onnx.ModelProto, initializers: list[onnx.TensorProto], nodes: list[onnx.NodeProto]) -> None:
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(initializers)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
