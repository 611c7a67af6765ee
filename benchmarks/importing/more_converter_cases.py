"""One-node models of recurrent layers, of sorting, and of ops in the form of older opsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.importing.converter_cases import Array, NodeCase, case, integers, normal

_STEPS, _BATCH, _MACHINE, _HIDDEN = 3, 2, 4, 5
_GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _recurrent(
    op: str,
    name: str,
    *,
    directions: int = 1,
    bias: bool = True,
    lengths: Array | None = None,
    known_lengths: Array | None = None,
    initial: bool = False,
    **attributes: Any,
) -> NodeCase:
    gates, states = _GATES[op], 2 if op == "LSTM" else 1
    by_batch = bool(attributes.get("layout"))
    shape = (_BATCH, _STEPS, _MACHINE) if by_batch else (_STEPS, _BATCH, _MACHINE)
    stored = {
        "w": normal(directions, gates * _HIDDEN, _MACHINE, seed=1),
        "r": normal(directions, gates * _HIDDEN, _HIDDEN, seed=2),
    }
    order = ["x", "w", "r", "", "", "", ""]
    inputs: dict[str, Array] = {"x": normal(*shape)}
    if bias:
        stored["b"] = normal(directions, 2 * gates * _HIDDEN, seed=3)
        order[3] = "b"
    if lengths is not None:
        inputs["lengths"] = lengths.astype(np.int32)
        order[4] = "lengths"
    if known_lengths is not None:
        stored["lengths"] = known_lengths.astype(np.int32)
        order[4] = "lengths"
    if initial:
        state = (_BATCH, directions, _HIDDEN) if by_batch else (directions, _BATCH, _HIDDEN)
        for i, which in enumerate(("h0", "c0")[:states]):
            inputs[which] = normal(*state, seed=4 + i)
            order[5 + i] = which
    while not order[-1]:
        order.pop()
    return NodeCase(
        name=f"{op}_{name}",
        op=op,
        inputs=inputs,
        stored=stored,
        order=tuple(order),
        attributes={"hidden_size": _HIDDEN, **attributes},
        outputs=1 + states,
    )


RECURRENT = (
    *(_recurrent(op, "plain") for op in _GATES),
    *(_recurrent(op, "no_bias", bias=False) for op in _GATES),
    *(_recurrent(op, "reverse", direction="reverse") for op in _GATES),
    *(_recurrent(op, "both_ways", directions=2, direction="bidirectional", initial=True) for op in _GATES),
    *(_recurrent(op, "lengths", lengths=integers(3, 1), initial=True) for op in _GATES),
    *(
        _recurrent(op, "lengths_both_ways", directions=2, direction="bidirectional", lengths=integers(2, 3))
        for op in _GATES
    ),
    _recurrent("LSTM", "full_lengths", known_lengths=integers(3, 3)),
    _recurrent("LSTM", "activations", activations=["Sigmoid", "Relu", "Tanh"]),
    _recurrent("GRU", "linear_before_reset", linear_before_reset=1),
    _recurrent("GRU", "linear_before_reset_no_bias", linear_before_reset=1, bias=False),
    _recurrent("RNN", "relu", activations=["Relu"]),
)


def _top_k(name: str, x: Array, count: int, **attributes: Any) -> NodeCase:
    return replace(
        case(f"TopK_{name}", "TopK", x, integers(count), outputs=2, **attributes), other_types=TensorProto.INT64
    )


def _scatter(op: str, name: str, indices: Array, *, opset: int = 18, **attributes: Any) -> NodeCase:
    return NodeCase(
        name=f"{op}_{name}",
        op=op,
        inputs={"x": normal(3, 4), "i": indices, "u": normal(*indices.shape, seed=1)},
        attributes=attributes,
        opset=opset,
    )


def _one_hot(name: str, **attributes: Any) -> NodeCase:
    return NodeCase(
        name=f"OneHot_{name}",
        op="OneHot",
        inputs={"i": np.array([[0, 2, -1], [3, 1, 7]], np.int64)},
        stored={"depth": np.array(4, np.int64), "values": np.array([-1.0, 2.0], np.float32)},
        attributes=attributes,
    )


def _gather_nd(name: str, x: Array, indices: Array, *, stored: bool = False, **attributes: Any) -> NodeCase:
    inputs, constants = {"x": x}, {"i": indices}
    return NodeCase(
        name=f"GatherND_{name}",
        op="GatherND",
        inputs=inputs if stored else {**inputs, **constants},
        stored=constants if stored else {},
        attributes=attributes,
    )


def _scatter_nd(name: str, x: Array, indices: Array, *, stored: bool = False, **attributes: Any) -> NodeCase:
    updates = normal(*indices.shape[:-1], *x.shape[indices.shape[-1] :], seed=1)
    return NodeCase(
        name=f"ScatterND_{name}",
        op="ScatterND",
        inputs={"x": x, "u": updates} if stored else {"x": x, "i": indices, "u": updates},
        stored={"i": indices} if stored else {},
        order=("x", "i", "u"),
        attributes=attributes,
        opset=18,
    )


_TUPLES = np.array([[[0, 1], [2, -1]], [[1, 1], [-3, 0]]], np.int64)
_PAIR_IN_EACH_ROW = np.array([[[1, -1], [0, 2]], [[0, 0], [1, 1]], [[-2, 3], [1, 0]]], np.int64)
ND = (
    _gather_nd("elements", normal(3, 4), _TUPLES),
    _gather_nd("rows", normal(3, 4, 2), np.array([[2], [-3], [2]], np.int64)),
    _gather_nd("slices", normal(3, 4, 2), _TUPLES),
    _gather_nd("batched", normal(3, 2, 4), _PAIR_IN_EACH_ROW, batch_dims=1),
    _gather_nd("batched_slices", normal(3, 2, 4, 2), _PAIR_IN_EACH_ROW, batch_dims=1),
    _gather_nd("twice_batched", normal(3, 2, 4), np.array([[[1], [-1]], [[0], [2]], [[3], [0]]]), batch_dims=2),
    _gather_nd("known", normal(3, 4, 2), _TUPLES, stored=True),
    _gather_nd("known_batched", normal(3, 2, 4), _PAIR_IN_EACH_ROW, stored=True, batch_dims=1),
    _scatter_nd("elements", normal(3, 4), _TUPLES),
    _scatter_nd("rows", normal(3, 4, 2), np.array([[2], [-3]], np.int64)),
    _scatter_nd("slices", normal(3, 4, 2), _TUPLES),
    _scatter_nd("known", normal(3, 4, 2), _TUPLES, stored=True),
    _scatter_nd("add", normal(3, 4), np.array([[0, 1], [2, 2], [0, 1], [0, -3]], np.int64), reduction="add"),
)

_PLACES = np.array([[1, -1], [0, 1]], np.int64)  # no place twice along either axis
SCATTERS = (
    _one_hot("last"),
    _one_hot("first", axis=0),
    _one_hot("middle", axis=1),
    _scatter("ScatterElements", "rows", _PLACES),
    _scatter("ScatterElements", "columns", _PLACES, axis=1),
    _scatter("ScatterElements", "add", np.array([[1, 1], [0, 0], [2, 2]], np.int64), axis=1, reduction="add"),
    _scatter("Scatter", "old", _PLACES, axis=1, opset=10),
)

ORDERINGS = (
    _top_k("all", normal(2, 5), 5),
    _top_k("smallest", normal(4, 3), 2, axis=0, largest=0),
    _top_k("ties", np.array([[1, 2, 2, 1, 2]], np.float32), 4),
)

SEQUENCES = (
    case("ReverseSequence_whole", "ReverseSequence", normal(3, 2, 4), integers(3, 3), time_axis=0, batch_axis=1),
    case("ReverseSequence_parts", "ReverseSequence", normal(2, 4, 3), integers(2, 3), time_axis=1, batch_axis=0),
    case("ReverseSequence_short", "ReverseSequence", normal(4, 2), integers(1, 4), time_axis=0, batch_axis=1),
)

OLD_OPSETS = (
    case("Clip_attributes", "Clip", normal(3, 4), opset=10, min=-0.5, max=0.25),
    case("Softmax_joins_axes", "Softmax", normal(2, 3, 4), opset=12),
    case("Softmax_last_axis", "Softmax", normal(2, 3, 4), opset=12, axis=2),
    case("LogSoftmax_joins_axes", "LogSoftmax", normal(2, 3, 4), opset=12, axis=1),
    case("Slice_attributes", "Slice", normal(5, 6), opset=9, starts=[1, -3], ends=[4, 9], axes=[0, 1]),
    case("Squeeze_attribute", "Squeeze", normal(2, 1, 3), opset=12, axes=[1]),
    case("Unsqueeze_attribute", "Unsqueeze", normal(2, 3), opset=12, axes=[0, 3]),
    case("ReduceSum_attribute", "ReduceSum", normal(2, 3, 4), opset=12, axes=[1], keepdims=0),
    case("Split_attribute", "Split", normal(2, 6), opset=12, axis=1, split=[2, 4], outputs=2),
    case("Pad_attributes", "Pad", normal(2, 3), opset=10, pads=[0, 1, 1, 2], value=1.5),
    case("Upsample_nearest", "Upsample", normal(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32), opset=9),
    case("Resize_first_version", "Resize", normal(1, 2, 3, 4), np.array([1, 1, 2, 2], np.float32), opset=10),
)

CASTS = (replace(case("CastLike_integer", "CastLike", normal(2, 3) * 4, integers(1)), output_type=TensorProto.INT64),)

MORE_CASES: tuple[NodeCase, ...] = (*RECURRENT, *SCATTERS, *ND, *ORDERINGS, *SEQUENCES, *CASTS, *OLD_OPSETS)
