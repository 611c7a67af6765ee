"""Models that come with edgetrain, built as ONNX from a seed or from the weights of a pip package.

The same name gives the same bytes. The batch is symbolic (`batch`); the input is `image`, the output `logits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from edgetrain.errors import ModelError
from edgetrain.model.efficientnet import efficientnet_lite0
from edgetrain.model.onnx_build import FloatArray, GraphWriter
from edgetrain.schema import close_to

_SEED = 0


def small_cnn(
    name: str,
    *,
    image: tuple[int, int, int],
    channels: tuple[int, ...],
    pool_after: tuple[int, ...],
    batch_norm: bool = False,
    classes: int = 10,
) -> onnx.ModelProto:
    """Convolutions of 3 × 3, a 2 × 2 max pool after those numbered in `pool_after`, and one dense layer.

    Weights are drawn by He's rule from a fixed seed, biases are 0.
    """
    rng = np.random.Generator(np.random.PCG64(_SEED))
    writer = GraphWriter()
    x = "image"
    inputs, height, width = image
    for layer, outputs in enumerate(channels):
        weight = _normal(rng, (outputs, inputs, 3, 3), variance=2 / (inputs * 9))
        bias = None if batch_norm else np.zeros(outputs, np.float32)
        x = writer.convolution(x, weight, f"conv{layer}", bias=bias, pads=(1, 1, 1, 1))
        if batch_norm:
            x = _fresh_batch_norm(writer, x, f"norm{layer}", outputs)
        x = writer.node("Relu", [x], f"relu{layer}")
        if layer in pool_after:
            x = writer.node("MaxPool", [x], f"pool{layer}", kernel_shape=[2, 2], strides=[2, 2])
            height, width = height // 2, width // 2
        inputs = outputs
    x = writer.node("Flatten", [x], "features", axis=1)
    features = inputs * height * width
    weight = _normal(rng, (classes, features), variance=2 / features)
    writer.dense(x, weight, np.zeros(classes, np.float32), "logits", layer="head")
    return writer.finish(name, image=image, classes=classes)


_digits_cnn = partial(small_cnn, image=(1, 8, 8), channels=(16, 32), pool_after=(1,))

_ZOO: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "digits-cnn": partial(_digits_cnn, "digits-cnn"),
    "digits-cnn-bn": partial(_digits_cnn, "digits-cnn-bn", batch_norm=True),
    "fashion-cnn": partial(small_cnn, "fashion-cnn", image=(1, 28, 28), channels=(16, 32, 64), pool_after=(0, 1)),
    "efficientnet-lite0": efficientnet_lite0,
}


def zoo_names() -> tuple[str, ...]:
    """What can follow `zoo:`, sorted."""
    return tuple(sorted(_ZOO))


def build_zoo_model(name: str) -> onnx.ModelProto:
    """The model of that name, without the `zoo:`. Raises `ModelError` for an unknown name or missing weights."""
    if name not in _ZOO:
        raise ModelError(
            f"there is no model `zoo:{name}`{close_to(name, _ZOO)}",
            why=f"the zoo holds {', '.join(zoo_names())}",
            fix="use one of them, or the path of an .onnx file",
        )
    return _ZOO[name]()


# What may stand between the last dense layer and the output: none of it depends on the number of classes.
_AFTER_HEAD = frozenset({"Identity", "Cast", "Dropout", "Softmax", "LogSoftmax", "Sigmoid"})


def replace_head(model: onnx.ModelProto, classes: int, seed: int) -> onnx.ModelProto:
    """A copy of a classifier whose last dense layer has `classes` outputs and new weights, drawn from `seed`.

    The last dense layer is the MatMul or Gemm whose result reaches the model's first output through nothing but a
    bias and elementwise nodes. New weights have the variance 1 / inputs, the new bias is 0.
    Raises `ModelError` where there is no such layer, or where its weight is not its own and stored in the file.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    head, bias, path = _find_head(graph)
    stored = {tensor.name: tensor for tensor in graph.initializer}
    users = [name for node in graph.node for name in node.input]
    for name in (head.input[1], bias):
        if name and (name not in stored or users.count(name) != 1):
            raise ModelError(
                f"the head `{head.name or head.output[0]}` cannot be replaced",
                why=f"`{name}` is computed or shared, not a stored parameter of the head alone",
                fix="leave out `model.classes`, or export the model with a dense layer of its own at the end",
            )
    weight = stored[head.input[1]]
    outputs_first = head.op_type == "Gemm" and any(a.name == "transB" and a.i for a in head.attribute)
    features = weight.dims[1] if outputs_first else weight.dims[0]
    fresh = _normal(np.random.Generator(np.random.PCG64(seed)), (classes, features), variance=1.0 / features)
    weight.CopyFrom(numpy_helper.from_array(fresh if outputs_first else np.ascontiguousarray(fresh.T), weight.name))
    if bias:
        stored[bias].CopyFrom(numpy_helper.from_array(np.zeros(classes, np.float32), bias))
    graph.output[0].type.tensor_type.shape.dim[-1].dim_value = classes
    kept = [info for info in graph.value_info if info.name not in path]  # theirs tells the old number of classes
    del graph.value_info[:]
    graph.value_info.extend(kept)
    return result


def _find_head(graph: Any) -> tuple[Any, str, frozenset[str]]:
    """The last dense node, the name of its bias (or nothing), and the values from there to the output."""
    producers = {output: node for node in graph.node for output in node.output}
    stored = {tensor.name for tensor in graph.initializer}
    name, bias, path = graph.output[0].name, "", set()
    while (node := producers.get(name)) is not None:
        path.add(name)
        if node.op_type in ("MatMul", "Gemm"):
            return node, node.input[2] if len(node.input) > 2 else bias, frozenset(path)
        constants = [value for value in node.input if value in stored]
        if node.op_type == "Add" and len(constants) == 1 and not bias:
            bias = constants[0]
            name = next(value for value in node.input if value != bias)
        elif node.op_type in _AFTER_HEAD:
            name = node.input[0]
        else:
            break
    raise ModelError(
        f"the model has no dense layer at its output `{graph.output[0].name}` to replace",
        why=f"`{name}` comes from {node.op_type if node is not None else 'an input'}, not from MatMul or Gemm",
        fix="leave out `model.classes`, or export the model with a dense layer at the end",
    )


def _fresh_batch_norm(writer: GraphWriter, x: str, name: str, channels: int) -> str:
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    return writer.batch_norm(x, name, scale=ones, bias=zeros, mean=zeros, variance=ones, epsilon=1e-5, momentum=0.9)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], *, variance: float) -> FloatArray:
    weights: FloatArray = (rng.standard_normal(shape) * np.sqrt(variance)).astype(np.float32)
    return weights
