"""Quantised models become the float models behind them: near onnxruntime's integers, and trainable."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from benchmarks.importing.onnx_models import model_of
from edgetrain.model.importer import import_model
from tests.edgetrain.model.running import expected, run

node = helper.make_node
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (2, 3, 6, 6)).astype(np.float32)
WEIGHT = RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
_STEP = 4e-2  # one step of the coarsest integers in these models, summed over a few products


def _static() -> onnx.ModelProto:
    """Quantise, dequantise, convolve with dequantised weights; the output's range of 0 and above stands for a ReLU."""
    return model_of(
        [
            node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
            node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
            node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
            node("Conv", ["xd", "wd"], ["c"]),
            node("QuantizeLinear", ["c", "ys", "yz"], ["yq"]),
            node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
        ],
        inputs={"x": ["n", 3, 6, 6]},
        outputs=["y"],
        stored={
            "xs": np.array(1 / 128, np.float32),
            "xz": np.array(128, np.uint8),
            "w": WEIGHT,
            "ws": np.full(4, 1 / 400, np.float32),
            "wz": np.zeros(4, np.int8),
            "ys": np.array(1 / 64, np.float32),
            "yz": np.array(0, np.uint8),
        },
    )


def _dynamic(op: str) -> onnx.ModelProto:
    weight: Any = WEIGHT if op == "ConvInteger" else RNG.integers(-127, 128, (6, 5)).astype(np.int8)
    return model_of(
        [
            node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
            node(op, ["xq", "w", "xz", "wz"], ["whole"]),
            node("Cast", ["whole"], ["float"], to=1),
            node("Mul", ["xs", "ws"], ["scale"]),
            node("Mul", ["float", "scale"], ["y"]),
        ],
        inputs={"x": ["n", 3, 6, 6]},
        outputs=["y"],
        stored={"w": weight, "wz": np.array(3, np.int8), "ws": np.array(1 / 400, np.float32)},
    )


_SCALES = {
    "xs": np.array(1 / 128, np.float32),
    "xz": np.array(128, np.uint8),
    "ys": np.array(1 / 32, np.float32),
    "yz": np.array(0, np.uint8),
}


def _operators(op: str, *operands: str, domain: str = "", **stored: Any) -> onnx.ModelProto:
    """Quantise, one op of integers, dequantise."""
    return model_of(
        [
            node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
            node(op, ["xq", "xs", "xz", *operands], ["yq"], domain=domain),
            node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
        ],
        inputs={"x": ["n", 3, 6, 6]},
        outputs=["y"],
        stored={**_SCALES, **stored},
        domains=[domain] if domain else [],
    )


_CONVOLUTION = _operators(
    "QLinearConv",
    *("w", "ws", "wz", "ys", "yz", "b"),
    w=WEIGHT,
    ws=np.array([1 / 400, 1 / 500, 1 / 300, 1 / 450], np.float32),
    wz=np.zeros(4, np.int8),
    b=np.array([900, -500, 0, 7000], np.int32),
)
_PRODUCT = _operators(
    "QLinearMatMul",
    *("w", "ws", "wz", "ys", "yz"),
    w=RNG.integers(-127, 128, (6, 5)).astype(np.int8),
    ws=np.array(1 / 200, np.float32),
    wz=np.array(3, np.int8),
)
_FOREIGN = {
    "QLinearAdd": ("xq", "xs", "xz", "ys", "yz"),
    "QLinearMul": ("xq", "xs", "xz", "ys", "yz"),
    "QLinearSigmoid": ("ys", "yz"),
    "QLinearLeakyRelu": ("ys", "yz"),
    "QLinearGlobalAveragePool": ("ys", "yz"),
}


@pytest.mark.compile
@pytest.mark.parametrize("op", _FOREIGN)
def test_a_quantised_op_of_onnxruntime_is_near_its_integers(op: str) -> None:
    proto = _operators(op, *_FOREIGN[op], domain="com.microsoft")
    (ours,), (theirs,) = run(import_model(proto, name=op, batch=2), {"x": X}), expected(proto, {"x": X})
    np.testing.assert_allclose(ours, theirs, atol=_STEP)


@pytest.mark.compile
def test_the_bias_of_a_quantised_convolution_is_learned_in_its_scales() -> None:
    model = import_model(_CONVOLUTION, name="quantised", batch=2)
    assert model.parameters["b"] == pytest.approx(np.array([900 / 400, -500 / 500, 0, 7000 / 450]) / 128)
    (ours,), (theirs,) = run(model, {"x": X}), expected(_CONVOLUTION, {"x": X})
    np.testing.assert_allclose(ours, theirs, atol=_STEP)


@pytest.mark.compile
@pytest.mark.parametrize(
    "proto",
    [_static(), _dynamic("ConvInteger"), _dynamic("MatMulInteger"), _PRODUCT],
    ids=["static", "dynamic_conv", "dynamic_matmul", "operators_matmul"],
)
def test_a_quantised_model_is_near_its_integers_and_its_weights_are_learned(proto: onnx.ModelProto) -> None:
    model = import_model(proto, name="quantised", batch=2)
    assert [a.dtype for a in model.parameters.values()] == [np.float32]
    assert next(iter(model.parameters.values())).size > 1
    (ours,), (theirs,) = run(model, {"x": X}), expected(proto, {"x": X})
    np.testing.assert_allclose(ours, theirs, atol=_STEP)


@pytest.mark.compile
def test_the_range_of_the_integers_is_kept() -> None:
    """Quantisers drop a ReLU that an output's zero point of 0 implies: without the clip its effect would be gone."""
    (ours,) = run(import_model(_static(), name="quantised", batch=2), {"x": X})
    assert ours.min() == 0.0


def test_half_precision_weights_are_learned_in_full_precision() -> None:
    proto = model_of(
        [node("Cast", ["x"], ["half"], to=10), node("MatMul", ["half", "w"], ["p"]), node("Cast", ["p"], ["y"], to=1)],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored={"w": np.ones((3, 2), np.float16)},
    )
    model = import_model(proto, name="half", batch=2)
    assert model.parameters["w"].dtype == np.float32
    assert "16-bit weights are trained as float32" in model.rewrites
