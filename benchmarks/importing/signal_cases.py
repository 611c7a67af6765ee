"""One-node models of sampling, spectra, norms over windows, ONNX's own losses, and ops that onnxruntime fuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.importing.converter_cases import Array, NodeCase, case, integers, normal

_IMAGE = normal(2, 3, 5, 4)
# Beyond −1 … 1 too, so that every padding mode has work.
_GRID = np.random.default_rng(7).uniform(-1.7, 1.7, (2, 3, 6, 2)).astype(np.float32)


def _sampled(name: str, **attributes: object) -> NodeCase:
    return NodeCase(
        name=f"GridSample_{name}", op="GridSample", inputs={"x": _IMAGE, "grid": _GRID}, attributes=attributes, opset=16
    )


SAMPLES = (
    *(
        _sampled(f"{mode}_{padding}_{aligned}", mode=mode, padding_mode=padding, align_corners=aligned)
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ),
    replace(_sampled("linear", mode="linear"), opset=20),
    NodeCase(name="GridSample_point", op="GridSample", inputs={"x": normal(2, 3, 1, 1), "grid": _GRID}, opset=16),
)

GRIDS = tuple(
    case(f"AffineGrid_{aligned}", "AffineGrid", normal(2, 2, 3), integers(2, 3, 4, 5), opset=20, align_corners=aligned)
    for aligned in (0, 1)
)

_SIGNAL = normal(2, 20, 1)
_WINDOW = np.hanning(8).astype(np.float32)


def _dft(name: str, x: Array, *stored: Array, opset: int = 17, **attributes: int) -> NodeCase:
    return case(f"DFT_{name}", "DFT", x, *stored, opset=opset, **attributes)


SPECTRA = (
    _dft("real", normal(2, 6, 1)),
    _dft("complex", normal(2, 5, 2)),
    _dft("axis", normal(2, 3, 6, 1), axis=2),
    _dft("onesided", normal(2, 7, 1), onesided=1),
    _dft("inverse", normal(2, 6, 2), inverse=1),
    _dft("longer", normal(2, 5, 1), np.array(8, np.int64)),
    _dft("shorter", normal(2, 9, 2), np.array(6, np.int64)),
    _dft("axis_input", normal(2, 3, 6, 1), np.array(6, np.int64), np.array(1, np.int64), opset=20),
    case("STFT_window", "STFT", _SIGNAL, np.array(4, np.int64), _WINDOW),
    case("STFT_both_sides", "STFT", _SIGNAL, np.array(3, np.int64), _WINDOW, onesided=0),
    NodeCase(
        name="STFT_no_window",
        op="STFT",
        inputs={"x": _SIGNAL},
        stored={"step": np.array(5, np.int64), "length": np.array(10, np.int64)},
        order=("x", "step", "", "length"),
    ),
)

NORMS = (
    case("LRN_odd", "LRN", normal(2, 7, 3, 4), size=5, alpha=0.3, beta=0.6, bias=1.5),
    case("LRN_wide", "LRN", normal(2, 4, 3, 2), size=7, alpha=0.5),
    case("LpPool_two", "LpPool", _IMAGE, kernel_shape=[2, 3], strides=[2, 1], pads=[1, 1, 0, 1]),
    case("LpPool_one", "LpPool", _IMAGE, kernel_shape=[2, 2], p=1),
    case("LpPool_three", "LpPool", normal(2, 3, 8), kernel_shape=[3], p=3),
    case("GlobalLpPool_two", "GlobalLpPool", _IMAGE),
    case("GlobalLpPool_three", "GlobalLpPool", _IMAGE, p=3),
)

_LABELS = np.array([[0, 2, 1], [3, 3, 0]], np.int64)
_WEIGHTS = np.array([0.5, 1.0, 2.0, 1.5], np.float32)


def _loss(name: str, op: str, *, weighted: bool = False, outputs: int = 1, **attributes: object) -> NodeCase:
    scores = normal(2, 4, 3)
    if op == "NegativeLogLikelihoodLoss":
        scores = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return NodeCase(
        name=f"{op}_{name}",
        op=op,
        inputs={"scores": scores, "labels": _LABELS},
        stored={"weights": _WEIGHTS} if weighted else {},
        attributes=attributes,
        outputs=outputs,
    )


LOSSES = (
    *(
        _loss(f"{reduction}_{weighted}", op, weighted=weighted, reduction=reduction)
        for op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
        for reduction in ("mean", "sum", "none")
        for weighted in (False, True)
    ),
    _loss("ignored", "SoftmaxCrossEntropyLoss", weighted=True, ignore_index=3),
    _loss("ignored_plain", "SoftmaxCrossEntropyLoss", ignore_index=0, reduction="mean"),
    _loss("shares_too", "SoftmaxCrossEntropyLoss", outputs=2),
)


def _fused(name: str, op: str, x: Array, *stored: Array, **attributes: Any) -> NodeCase:
    plain = case(f"{op}_{name}", op, x, *stored, **attributes)
    return replace(plain, domain="com.microsoft")


def _skipped(name: str, op: str, *stored: Array) -> NodeCase:
    return NodeCase(
        name=f"{op}_{name}",
        op=op,
        domain="com.microsoft",
        inputs={"x": normal(2, 3, 6), "skip": normal(2, 3, 6, seed=1)},
        stored={f"s{i}": values for i, values in enumerate(stored)},
        attributes={"epsilon": 1e-5},
    )


FUSED = (
    _fused("plain", "Gelu", normal(2, 6)),
    _fused("plain", "BiasGelu", normal(2, 6), normal(6)),
    _fused("plain", "FastGelu", normal(2, 6)),
    _fused("bias", "FastGelu", normal(2, 6), normal(6)),
    _fused("plain", "QuickGelu", normal(2, 6)),
    _fused("turned", "FusedMatMul", normal(2, 4, 3), normal(5, 4), transA=1, transB=1, alpha=0.5),
    _fused("relu", "FusedConv", _IMAGE, normal(2, 3, 3, 3), normal(2), activation="Relu"),
    _fused("leaky", "FusedConv", _IMAGE, normal(2, 3, 3, 3), activation="LeakyRelu", activation_params=[0.2]),
    _fused("clip", "FusedConv", _IMAGE, normal(2, 3, 3, 3), activation="Clip", activation_params=[0.0, 0.7]),
    _fused("tanh", "FusedConv", _IMAGE, normal(2, 3, 3, 3), activation="Tanh"),
    _skipped("plain", "SkipLayerNormalization", normal(6), normal(6, seed=2)),
    _skipped("bias", "SkipLayerNormalization", normal(6), normal(6, seed=2), normal(6, seed=3)),
    _skipped("plain", "SkipSimplifiedLayerNormalization", normal(6)),
)

SIGNAL_CASES = (*SAMPLES, *GRIDS, *SPECTRA, *NORMS, *LOSSES, *FUSED)
