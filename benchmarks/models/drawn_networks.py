"""ResNet-18 and MobileNetV2 of their real depth and width, drawn from a seed. Needs no torch."""

from __future__ import annotations

import onnx

from benchmarks.models.small_networks import CLASSES, Net, basic_block


def resnet18(size: int) -> onnx.ModelProto:
    """ResNet-18 as torchvision has it: a 7 × 7 stem, 64 to 512 channels, 11.2 million parameters."""
    net = Net(11)
    x = net.convolution("image", "stem", inputs=3, outputs=64, size=7, stride=2)
    x = net.relu(net.batch_norm(x, "stem.norm", 64))
    x = net.writer.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            x = basic_block(net, x, f"stage{stage}.{block}", inputs, outputs, stride)
            inputs = outputs
    x = net.writer.node("Flatten", [net.writer.node("GlobalAveragePool", [x], "pooled")], "features")
    net.dense(x, "head", inputs=512, outputs=CLASSES, output="logits")
    return net.finish("resnet18", 3, size, size)


# Expansion, channels out, repeats, stride of the first repeat: table 2 of Sandler et al. (2018, arXiv:1801.04381).
_MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_MOBILENET_LAST = 1280


def mobilenet_v2(size: int) -> onnx.ModelProto:
    """MobileNetV2 at width 1: 17 inverted residuals with linear bottlenecks, ReLU6, 2.2 million parameters."""
    net = Net(12)
    x = _convolution_norm(net, "image", "stem", inputs=3, outputs=32, size=3, stride=2)
    channels, block = 32, 0
    for expansion, outputs, repeats, first_stride in _MOBILENET_STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            y = _inverted_residual(net, x, f"block{block}", channels, outputs, expansion=expansion, stride=stride)
            x = net.writer.node("Add", [x, y], f"block{block}.sum") if (stride, channels) == (1, outputs) else y
            channels, block = outputs, block + 1
    x = _convolution_norm(net, x, "last", inputs=channels, outputs=_MOBILENET_LAST, size=1)
    x = net.writer.node("Flatten", [net.writer.node("GlobalAveragePool", [x], "pooled")], "features")
    net.dense(x, "head", inputs=_MOBILENET_LAST, outputs=CLASSES, output="logits")
    return net.finish("mobilenet-v2", 3, size, size)


def _inverted_residual(net: Net, x: str, name: str, inputs: int, outputs: int, *, expansion: int, stride: int) -> str:
    wide = expansion * inputs
    if expansion > 1:
        x = _convolution_norm(net, x, f"{name}.expand", inputs=inputs, outputs=wide, size=1)
    x = _convolution_norm(net, x, f"{name}.depthwise", inputs=wide, outputs=wide, size=3, stride=stride, group=wide)
    x = net.convolution(x, f"{name}.project", inputs=wide, outputs=outputs, size=1)
    return net.batch_norm(x, f"{name}.project.norm", outputs)


def _convolution_norm(
    net: Net, x: str, name: str, *, inputs: int, outputs: int, size: int, stride: int = 1, group: int = 1
) -> str:
    x = net.convolution(x, name, inputs=inputs, outputs=outputs, size=size, stride=stride, group=group)
    return net.writer.clip(net.batch_norm(x, f"{name}.norm", outputs), f"{name}.relu6", low=0.0, high=6.0)
