"""Models of their real depth and width, and batches for them: what ten steps are compared with PyTorch on.

EfficientNet-Lite0 and MiniLM-L6 come with their trained weights; ResNet-18, MobileNetV2, an LSTM classifier and a
1-D audio network are drawn from a seed. Needs torch, which settles the statistics of the drawn ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from benchmarks.models import drawn_networks
from benchmarks.models.small_networks import CLASSES, Net
from benchmarks.references import torch_reference
from benchmarks.references.trained import Batch, make_batches
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.model.zoo import build_zoo_model, replace_head

SGD = OptimizerOptions(kind="sgd", momentum=0.9, weight_decay=1e-4)
MakeBatches = Callable[[int, int], list[Batch]]  # (seed, how many)


@dataclass(frozen=True, kw_only=True)
class RealCase:
    """A model, batches drawn from a seed, and how it is trained."""

    model: Callable[[], onnx.ModelProto]
    batches: MakeBatches
    options: TrainOptions
    learning_rate: float


def efficientnet_lite0() -> onnx.ModelProto:
    """ImageNet's weights under a new head. Raises `ModelError` where their package is missing."""
    return replace_head(build_zoo_model("efficientnet-lite0"), CLASSES, seed=0)


def minilm_l6() -> onnx.ModelProto:
    """The weights of a sentence model under a new head. Raises `ModelError` where their package is missing."""
    return replace_head(build_zoo_model("minilm-l6"), CLASSES, seed=0)


def resnet18(size: int) -> onnx.ModelProto:
    """ResNet-18 with the running statistics of a trained one."""
    return settled(drawn_networks.resnet18(size), (3, size, size))


def mobilenet_v2(size: int) -> onnx.ModelProto:
    """MobileNetV2 with the running statistics of a trained one."""
    return settled(drawn_networks.mobilenet_v2(size), (3, size, size))


LSTM_SERIES = (40, 9)  # time steps, channels
_LSTM_HIDDEN = 64


def lstm_classifier() -> onnx.ModelProto:
    """Two LSTM layers over a series, the first in both directions, and a dense layer on the last hidden state."""
    net = Net(13)
    x = net.writer.node("Transpose", ["series"], "steps", perm=[1, 0, 2])
    x = net.lstm(x, "first", inputs=LSTM_SERIES[1], hidden=_LSTM_HIDDEN, directions=2)
    together = net.writer.weight("together", np.array([0, 0, 2 * _LSTM_HIDDEN], np.int64))
    x = net.writer.node("Transpose", [x], "first.ordered", perm=[0, 2, 1, 3])
    x = net.writer.node("Reshape", [x, together], "first.features")
    x = net.lstm(x, "second", inputs=2 * _LSTM_HIDDEN, hidden=_LSTM_HIDDEN, directions=1)
    last = net.writer.weight("last", np.array(LSTM_SERIES[0] - 1, np.int64))
    x = net.writer.node("Gather", [x, last], "second.last", axis=0)
    direction = net.writer.weight("direction", np.array([0], np.int64))
    x = net.writer.node("Squeeze", [x, direction], "features")
    net.dense(x, "head", inputs=_LSTM_HIDDEN, outputs=CLASSES, output="logits")
    return net.writer.finish_with(
        "lstm-classifier", inputs={"series": (TensorProto.FLOAT, LSTM_SERIES)}, classes=CLASSES
    )


AUDIO_CLIP = (1, 8000)  # one second of telephone sound
# Channels out, kernel, stride: M5 of Dai et al. (2016, arXiv:1610.00087), each with BatchNorm, ReLU and a pool of 4.
_AUDIO_LAYERS = ((32, 80, 4), (32, 3, 1), (64, 3, 1), (64, 3, 1))


def audio_network() -> onnx.ModelProto:
    """Four 1-D convolutions on the raw waveform, the mean over time, one dense layer."""
    net = Net(14)
    x, inputs = "clip", AUDIO_CLIP[0]
    for layer, (outputs, kernel, stride) in enumerate(_AUDIO_LAYERS):
        name = f"conv{layer}"
        weight = net.normal(outputs, inputs, kernel, scale=(2.0 / (inputs * kernel)) ** 0.5)
        pads = (kernel // 2, kernel // 2)
        x = net.writer.convolution(x, weight, name, stride=stride, pads=pads)
        x = net.relu(net.batch_norm(x, f"{name}.norm", outputs))
        x = net.writer.node("MaxPool", [x], f"{name}.pool", kernel_shape=[4], strides=[4])
        inputs = outputs
    x = net.writer.node("Flatten", [net.writer.node("GlobalAveragePool", [x], "mean")], "features")
    net.dense(x, "head", inputs=inputs, outputs=CLASSES, output="logits")
    return net.writer.finish_with("audio-network", inputs={"clip": (TensorProto.FLOAT, AUDIO_CLIP)}, classes=CLASSES)


def normal_batches(shape: Sequence[int], size: int) -> MakeBatches:
    return lambda seed, count: make_batches(shape, CLASSES, loss="cross-entropy", size=size, seed=seed, count=count)


_VOCABULARY = 30522
_SHORTEST = 4


def token_batches(length: int, size: int) -> MakeBatches:
    """Random tokens in texts of random length, the rest of each row masked."""

    def make(seed: int, count: int) -> list[Batch]:
        rng = np.random.default_rng(seed)
        batches = []
        for _ in range(count):
            lengths = rng.integers(_SHORTEST, length + 1, (size, 1))
            mask = (np.arange(length) < lengths).astype(np.int64)
            tokens = rng.integers(1000, _VOCABULARY, (size, length)) * mask
            labels = rng.integers(0, CLASSES, size)
            batches.append(Batch(data=tokens, more={"attention_mask": mask}, labels=labels))
        return batches

    return make


_IMAGE_BATCH = 4
# A rate for fine-tuning. At 0.005, with four images to take BatchNorm's statistics of, training is chaotic: after ten
# steps of EfficientNet-Lite0 the losses of float32 PyTorch are 4 % away from those of float64 PyTorch.
_IMAGE_RATE = 0.00003


_SETTLING_PASSES = 20


def settled(model: onnx.ModelProto, shape: Sequence[int]) -> onnx.ModelProto:
    """The model with running statistics as training leaves them behind: those of its own activations."""
    in_torch = torch_reference.TorchModel(model, "float32")
    rng = np.random.default_rng(0)
    for _ in range(_SETTLING_PASSES):
        in_torch.settle(rng.standard_normal((_IMAGE_BATCH, *shape)).astype(np.float32))
    values = in_torch.arrays()
    for tensor in model.graph.initializer:
        if tensor.name in in_torch.statistics:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))
    return model


def image_case(model: Callable[[], onnx.ModelProto], size: int, *, batchnorm: str) -> RealCase:
    return RealCase(
        model=model,
        batches=normal_batches((3, size, size), _IMAGE_BATCH),
        options=TrainOptions(batch=_IMAGE_BATCH, optimizer=SGD, batchnorm=batchnorm),
        learning_rate=_IMAGE_RATE,
    )


def minilm_case(*, length: int, batch: int) -> RealCase:
    return RealCase(
        model=minilm_l6,
        batches=token_batches(length, batch),
        options=TrainOptions(
            batch=batch, optimizer=SGD, input_shapes={"input_ids": (length,), "attention_mask": (length,)}
        ),
        learning_rate=0.005,
    )


LSTM_CASE = RealCase(
    model=lstm_classifier,
    batches=normal_batches(LSTM_SERIES, 8),
    options=TrainOptions(batch=8, optimizer=SGD),
    learning_rate=0.05,
)
AUDIO_CASE = RealCase(
    model=audio_network,
    batches=normal_batches(AUDIO_CLIP, 8),
    options=TrainOptions(batch=8, optimizer=SGD),
    learning_rate=0.01,
)


_IMAGE_MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "efficientnet-lite0": efficientnet_lite0,
    "resnet-18": partial(resnet18, 224),
    "mobilenet-v2": partial(mobilenet_v2, 224),
}

REAL_CASES: Mapping[str, RealCase] = {
    **{
        f"{name}, {batchnorm} BatchNorm": image_case(model, 224, batchnorm=batchnorm)
        for name, model in _IMAGE_MODELS.items()
        for batchnorm in ("train", "frozen")
    },
    "minilm-l6": minilm_case(length=32, batch=4),
    "lstm classifier": LSTM_CASE,
    "audio conv1d": AUDIO_CASE,
}
