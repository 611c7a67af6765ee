"""Models that come with edgetrain, built as ONNX from a seed or from the weights of a pip package.

The same name gives the same bytes. The batch is symbolic (`batch`); the output is `logits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto

from edgetrain.errors import ModelError
from edgetrain.model.efficientnet import efficientnet_lite0
from edgetrain.model.head import replace_head as replace_head  # where `program/` looks for it
from edgetrain.model.onnx_build import FloatArray, GraphWriter
from edgetrain.model.zoo_magika import magika
from edgetrain.model.zoo_minilm import minilm_l6
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


def series_cnn(
    name: str, *, channels: int, steps: int, filters: tuple[int, ...], kernel: int, classes: int
) -> onnx.ModelProto:
    """1-D convolutions over time, each with BatchNorm and a max pool of 2, the mean over time, and one dense layer.

    The input is `series`, (batch, channels, steps). Weights are drawn by He's rule from a fixed seed.
    """
    rng = np.random.Generator(np.random.PCG64(_SEED))
    writer = GraphWriter()
    x, inputs = "series", channels
    for layer, outputs in enumerate(filters):
        weight = _normal(rng, (outputs, inputs, kernel), variance=2 / (inputs * kernel))
        x = writer.convolution(x, weight, f"conv{layer}", pads=(kernel // 2, kernel // 2))
        x = _fresh_batch_norm(writer, x, f"norm{layer}", outputs)
        x = writer.node("Relu", [x], f"relu{layer}")
        x = writer.node("MaxPool", [x], f"pool{layer}", kernel_shape=[2], strides=[2])
        inputs = outputs
    x = writer.node("GlobalAveragePool", [x], "mean")
    x = writer.node("Flatten", [x], "features", axis=1)
    weight = _normal(rng, (classes, inputs), variance=1 / inputs)
    writer.dense(x, weight, np.zeros(classes, np.float32), "logits", layer="head")
    return writer.finish_with(name, inputs={"series": (TensorProto.FLOAT, (channels, steps))}, classes=classes)


_digits_cnn = partial(small_cnn, image=(1, 8, 8), channels=(16, 32), pool_after=(1,))

_ZOO: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "digits-cnn": partial(_digits_cnn, "digits-cnn"),
    "digits-cnn-bn": partial(_digits_cnn, "digits-cnn-bn", batch_norm=True),
    "fashion-cnn": partial(small_cnn, "fashion-cnn", image=(1, 28, 28), channels=(16, 32, 64), pool_after=(0, 1)),
    "voice-cnn": partial(
        small_cnn,
        "voice-cnn",
        image=(1, 40, 98),
        channels=(12, 24, 48),
        pool_after=(0, 1, 2),
        batch_norm=True,
        classes=5,
    ),
    "watch-cnn": partial(series_cnn, "watch-cnn", channels=6, steps=128, filters=(16, 32, 64), kernel=5, classes=7),
    "efficientnet-lite0": efficientnet_lite0,
    "minilm-l6": minilm_l6,
    "magika": magika,
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


def _fresh_batch_norm(writer: GraphWriter, x: str, name: str, channels: int) -> str:
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    return writer.batch_norm(x, name, scale=ones, bias=zeros, mean=zeros, variance=ones, epsilon=1e-5, momentum=0.9)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], *, variance: float) -> FloatArray:
    weights: FloatArray = (rng.standard_normal(shape) * np.sqrt(variance)).astype(np.float32)
    return weights
