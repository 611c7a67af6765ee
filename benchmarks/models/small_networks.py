"""Small models with the structure of large ones. Every one reads `image` and puts out `logits`, drawn from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from edgetrain.model.onnx_build import FloatArray, GraphWriter

CLASSES = 6


class Net:
    """A writer with a random generator: layers in one line each."""

    def __init__(self, seed: int) -> None:
        self.writer = GraphWriter()
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float) -> FloatArray:
        values: FloatArray = (self._rng.standard_normal(shape) * scale).astype(np.float32)
        return values

    def convolution(
        self,
        x: str,
        name: str,
        *,
        inputs: int,
        outputs: int,
        size: int = 3,
        stride: int = 1,
        pads: tuple[int, int, int, int] | None = None,
        group: int = 1,
        bias: bool = False,
    ) -> str:
        fan_in = inputs // group * size * size
        weight = self.normal(outputs, inputs // group, size, size, scale=(2.0 / fan_in) ** 0.5)
        around = (size // 2,) * 4 if pads is None else pads
        shift = self.normal(outputs, scale=0.1) if bias else None
        return self.writer.convolution(x, weight, name, bias=shift, stride=stride, pads=around, group=group)

    def batch_norm(self, x: str, name: str, channels: int) -> str:
        return self.writer.batch_norm(
            x,
            name,
            scale=1.0 + self.normal(channels, scale=0.1),
            bias=self.normal(channels, scale=0.1),
            mean=self.normal(channels, scale=0.1),
            variance=1.0 + self.normal(channels, scale=0.3) ** 2,
            epsilon=1e-5,
            momentum=0.9,
        )

    def relu(self, x: str) -> str:
        return self.writer.node("Relu", [x], f"{x}.relu")

    def dense(self, x: str, name: str, *, inputs: int, outputs: int, output: str = "") -> str:
        weight = self.normal(outputs, inputs, scale=(1.0 / inputs) ** 0.5)
        return self.writer.dense(x, weight, self.normal(outputs, scale=0.1), output or name, layer=name)

    def project(self, x: str, name: str, *, inputs: int, outputs: int, bias: bool = True) -> str:
        """MatMul with a weight (inputs, outputs) over the last axis, as exporters write a linear layer on tokens."""
        weight = self.writer.weight(f"{name}.weight", self.normal(inputs, outputs, scale=(1.0 / inputs) ** 0.5))
        product = self.writer.node("MatMul", [x, weight], f"{name}.product")
        if not bias:
            return product
        shift = self.writer.weight(f"{name}.bias", self.normal(outputs, scale=0.1))
        return self.writer.node("Add", [shift, product], name)

    def lstm(self, x: str, name: str, *, inputs: int, hidden: int, directions: int) -> str:
        """The hidden state at every step of `x` (steps, batch, inputs), as (steps, directions, batch, hidden)."""
        scale = hidden**-0.5
        stored = [
            self.writer.weight(f"{name}.{key}", self.normal(directions, *shape, scale=scale))
            for key, shape in (
                ("input", (4 * hidden, inputs)),
                ("recurrent", (4 * hidden, hidden)),
                ("bias", (8 * hidden,)),
            )
        ]
        direction = "bidirectional" if directions == 2 else "forward"
        return self.writer.node("LSTM", [x, *stored], name, hidden_size=hidden, direction=direction)

    def finish(self, name: str, *image: int) -> onnx.ModelProto:
        return self.writer.finish(name, image=image, classes=CLASSES)


MLP_INPUTS = 13


def mlp() -> onnx.ModelProto:
    """Two hidden layers whose sizes fit no vector."""
    net = Net(1)
    x = net.relu(net.dense("image", "first", inputs=MLP_INPUTS, outputs=17))
    x = net.relu(net.dense(x, "second", inputs=17, outputs=11))
    net.dense(x, "head", inputs=11, outputs=CLASSES, output="logits")
    return net.finish("mlp", MLP_INPUTS)


TIE_IMAGE = (2, 8, 8)


def tie_cnn() -> onnx.ModelProto:
    """On images of 4 × 4 squares the inner pool windows hold four equal values, at the first step.

    `position` remembers which of the four got the gradient: a wrong choice shows in its value.
    """
    net = Net(2)
    x = net.convolution("image", "conv", inputs=2, outputs=5, bias=True)
    x = net.writer.node("Add", [x, net.writer.weight("position", np.zeros((1, 5, 8, 8), np.float32))], "placed")
    x = net.writer.node("MaxPool", [x], "pooled", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1])
    x = net.writer.node("Flatten", [net.relu(x)], "features")
    net.dense(x, "head", inputs=5 * 5 * 5, outputs=CLASSES, output="logits")
    return net.finish("tie-cnn", *TIE_IMAGE)


BATCH_NORM_IMAGE = (3, 10, 10)


def batch_norm_cnn() -> onnx.ModelProto:
    """BatchNorm after a plain convolution, a strided one with uneven padding, and one with two groups."""
    net = Net(3)
    x = net.relu(net.batch_norm(net.convolution("image", "conv0", inputs=3, outputs=8), "norm0", 8))
    x = net.convolution(x, "conv1", inputs=8, outputs=12, stride=2, pads=(0, 1, 1, 0))
    x = net.relu(net.batch_norm(x, "norm1", 12))
    x = net.convolution(x, "conv2", inputs=12, outputs=8, group=2)
    x = net.relu(net.batch_norm(x, "norm2", 8))
    pads = [1, 1, 1, 1]
    x = net.writer.node("AveragePool", [x], "averaged", kernel_shape=[3, 3], strides=[2, 2], pads=pads)
    x = net.writer.node("Flatten", [x], "features")
    net.dense(x, "head", inputs=8 * 3 * 3, outputs=CLASSES, output="logits")
    return net.finish("batch-norm-cnn", *BATCH_NORM_IMAGE)


RESNET_IMAGE = (3, 32, 32)


def resnet18() -> onnx.ModelProto:
    """ResNet-18 with its stem, four stages of two basic blocks and 1 × 1 shortcuts, at a quarter of the width."""
    net = Net(4)
    x = net.relu(net.batch_norm(net.convolution("image", "stem", inputs=3, outputs=16), "stem.norm", 16))
    x = net.writer.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 16
    for stage, outputs in enumerate((16, 24, 32, 64)):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            x = basic_block(net, x, f"stage{stage}.{block}", inputs, outputs, stride)
            inputs = outputs
    x = net.writer.node("Flatten", [net.writer.node("GlobalAveragePool", [x], "pooled")], "features")
    net.dense(x, "head", inputs=64, outputs=CLASSES, output="logits")
    return net.finish("resnet18", *RESNET_IMAGE)


def basic_block(net: Net, x: str, name: str, inputs: int, outputs: int, stride: int) -> str:
    y = net.convolution(x, f"{name}.conv0", inputs=inputs, outputs=outputs, stride=stride)
    y = net.relu(net.batch_norm(y, f"{name}.norm0", outputs))
    y = net.batch_norm(net.convolution(y, f"{name}.conv1", inputs=outputs, outputs=outputs), f"{name}.norm1", outputs)
    if stride != 1 or inputs != outputs:
        x = net.convolution(x, f"{name}.shortcut", inputs=inputs, outputs=outputs, size=1, stride=stride)
        x = net.batch_norm(x, f"{name}.shortcut.norm", outputs)
    return net.relu(net.writer.node("Add", [y, x], f"{name}.sum"))


MOBILENET_IMAGE = (3, 16, 16)


def mobilenet() -> onnx.ModelProto:
    """Two inverted residuals: expand, depthwise, project; ReLU6 as Clip; strided and with a residual."""
    net = Net(5)
    x = net.convolution("image", "stem", inputs=3, outputs=8, stride=2, pads=(0, 0, 1, 1))
    x = _clipped(net, net.batch_norm(x, "stem.norm", 8))
    x = _inverted_residual(net, x, "block0", inputs=8, outputs=8, stride=1)
    x = _inverted_residual(net, x, "block1", inputs=8, outputs=12, stride=2)
    x = net.writer.node("Flatten", [net.writer.node("GlobalAveragePool", [x], "pooled")], "features")
    net.dense(x, "head", inputs=12, outputs=CLASSES, output="logits")
    return net.finish("mobilenet", *MOBILENET_IMAGE)


def _clipped(net: Net, x: str) -> str:
    return net.writer.clip(x, f"{x}.clip", low=0.0, high=1.5)  # low enough for values to reach it


def _inverted_residual(net: Net, x: str, name: str, *, inputs: int, outputs: int, stride: int) -> str:
    wide = 3 * inputs
    y = net.convolution(x, f"{name}.expand", inputs=inputs, outputs=wide, size=1)
    y = _clipped(net, net.batch_norm(y, f"{name}.expand.norm", wide))
    y = net.convolution(y, f"{name}.depthwise", inputs=wide, outputs=wide, stride=stride, group=wide)
    y = _clipped(net, net.batch_norm(y, f"{name}.depthwise.norm", wide))
    y = net.convolution(y, f"{name}.project", inputs=wide, outputs=outputs, size=1)
    y = net.batch_norm(y, f"{name}.project.norm", outputs)
    return net.writer.node("Add", [x, y], f"{name}.sum") if (stride, inputs) == (1, outputs) else y


TRANSFORMER_IMAGE = (5, 12)  # tokens, width
_HEADS = 3


def transformer() -> onnx.ModelProto:
    """One encoder layer as exporters write it: attention from MatMul, Softmax and Transpose; Gelu from Erf."""
    net = Net(6)
    tokens, width = TRANSFORMER_IMAGE
    attended = _attention(net, "image", tokens, width)
    x = _layer_norm(net, net.writer.node("Add", ["image", attended], "attention.sum"), "norm0", width)
    y = net.project(x, "expand", inputs=width, outputs=2 * width)
    y = net.project(_gelu(net, y), "contract", inputs=2 * width, outputs=width)
    x = _layer_norm(net, net.writer.node("Add", [x, y], "feed_forward.sum"), "norm1", width)
    x = net.writer.node("ReduceMean", [x], "pooled", axes=[1], keepdims=0)
    net.dense(x, "head", inputs=width, outputs=CLASSES, output="logits")
    return net.finish("transformer", *TRANSFORMER_IMAGE)


def _attention(net: Net, x: str, tokens: int, width: int) -> str:
    each = width // _HEADS
    apart = net.writer.weight("attention.apart", np.array([0, tokens, _HEADS, each], np.int64))
    together = net.writer.weight("attention.together", np.array([0, tokens, width], np.int64))

    def heads(name: str, order: list[int]) -> str:
        # No biases: a key's bias has no effect on a softmax, so its gradient is rounding error and compares to nothing.
        split = net.writer.node(
            "Reshape", [net.project(x, name, inputs=width, outputs=width, bias=False), apart], f"{name}.heads"
        )
        return net.writer.node("Transpose", [split], f"{name}.ordered", perm=order)

    query, key, value = (
        heads(n, o) for n, o in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
    )
    scores = net.writer.node("MatMul", [query, key], "scores")
    root = net.writer.weight("attention.root", np.array(each**0.5, np.float32))
    shares = net.writer.node("Softmax", [net.writer.node("Div", [scores, root], "scaled")], "shares", axis=-1)
    mixed = net.writer.node("MatMul", [shares, value], "mixed")
    mixed = net.writer.node("Transpose", [mixed], "mixed.ordered", perm=[0, 2, 1, 3])
    return net.project(
        net.writer.node("Reshape", [mixed, together], "mixed.tokens"), "attention", inputs=width, outputs=width
    )


def _layer_norm(net: Net, x: str, name: str, width: int) -> str:
    scale = net.writer.weight(f"{name}.scale", 1.0 + net.normal(width, scale=0.1))
    shift = net.writer.weight(f"{name}.bias", net.normal(width, scale=0.1))
    return net.writer.node("LayerNormalization", [x, scale, shift], name, axis=-1, epsilon=1e-5)


def _gelu(net: Net, x: str) -> str:
    def number(value: float) -> str:
        return net.writer.weight(f"gelu.{value:g}", np.array(value, np.float32))

    error = net.writer.node("Erf", [net.writer.node("Div", [x, number(2.0**0.5)], "gelu.scaled")], "gelu.erf")
    share = net.writer.node("Add", [error, number(1.0)], "gelu.share")
    return net.writer.node("Mul", [net.writer.node("Mul", [x, share], "gelu.twice"), number(0.5)], "gelu")


def gated() -> onnx.ModelProto:
    """Elementwise arithmetic between activations: a sigmoid gate, a tanh, a difference, a quotient."""
    net = Net(7)
    open_share = net.writer.node("Sigmoid", [net.dense("image", "gate", inputs=MLP_INPUTS, outputs=9)], "open")
    value = net.writer.node("Tanh", [net.dense("image", "value", inputs=MLP_INPUTS, outputs=9)], "bounded")
    kept = net.writer.node("Mul", [open_share, value], "kept")
    two = net.writer.weight("two", np.array(2.0, np.float32))
    x = net.writer.node("Sub", [kept, net.writer.node("Div", [value, two], "half")], "difference")
    scale = net.writer.weight("scale", 1.0 + net.normal(9, scale=0.2))
    x = net.writer.node("Div", [x, scale], "scaled")
    net.dense(x, "head", inputs=9, outputs=CLASSES, output="logits")
    return net.finish("gated", MLP_INPUTS)


def initial_parameters(model: Any) -> dict[str, FloatArray]:
    """Every floating point initializer with more than one element, by name."""
    values = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    return {n: a for n, a in values.items() if a.dtype == np.float32 and a.size > 1}
