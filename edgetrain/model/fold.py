"""Evaluating a node whose inputs are all known: shapes, ranges, masks and dequantised weights are constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgetrain.model.load import ONNX_DOMAINS
from edgetrain.model.model import Array

MAXIMUM_FOLDED_BYTES = 1 << 22  # larger results stay computed: folding them would bloat the program
_MAXIMUM_ELEMENTS = 1 << 24  # what a fold may compute at all, results that are thrown away included


def fold_node(node: Any, inputs: Sequence[Array | None], opset: int) -> tuple[Array, ...] | None:
    """The node's outputs, None where it must not or cannot be evaluated."""
    if not _may_fold(node) or _estimated_elements(node, inputs) > _MAXIMUM_ELEMENTS:
        return None
    quick = _QUICK.get(node.op_type)
    try:
        if quick is not None and all(a is not None for a in inputs):
            return (np.asarray(quick(node, [a for a in inputs if a is not None])),)
        return _evaluate(node, inputs, opset)
    except Exception:  # the evaluator does not know the op: it stays, and the importer reports it if it must
        return None


def is_small(arrays: Sequence[Array]) -> bool:
    return sum(a.nbytes for a in arrays) <= MAXIMUM_FOLDED_BYTES


def known_extent(node: Any, shape: tuple[int, ...]) -> Array:
    """What `Shape` and `Size` give for a tensor of this shape."""
    if node.op_type == "Size":
        return np.array(math.prod(shape), dtype=np.int64)
    bounds = {a.name: a.i for a in node.attribute}  # since opset 15 a part of the shape can be asked for
    return np.array(shape[bounds.get("start", 0) : bounds.get("end", len(shape))], dtype=np.int64)


def _may_fold(node: Any) -> bool:
    if node.domain not in ONNX_DOMAINS or any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
        return False
    return not node.op_type.startswith("Random") and node.op_type not in _NEVER


_NEVER = frozenset(("Multinomial", "Bernoulli", "Resize", "Upsample", "Optional", "SequenceConstruct", "StringSplit"))


def _product(values: Array) -> float:
    return float(np.prod(np.abs(values.astype(np.float64)))) if values.size else 1.0


def _tiled(arrays: Sequence[Array]) -> float:
    return float(arrays[0].size) * _product(arrays[1])


def _ranged(arrays: Sequence[Array]) -> float:
    start, limit, step = (float(a.reshape(-1)[0]) for a in arrays[:3])
    return abs((limit - start) / step) if step else math.inf


def _all_pairs(arrays: Sequence[Array]) -> float:
    return float(math.prod(a.size for a in arrays))


# How many elements an op that makes more than it gets may give; asked before it runs, for files can be hostile.
_GROWTH: Mapping[str, Callable[[Sequence[Array]], float]] = {
    "ConstantOfShape": lambda a: _product(a[0]),
    "Einsum": _all_pairs,
    "Expand": lambda a: float(a[0].size) * _product(a[1]),
    "Gather": _all_pairs,
    "GatherND": _all_pairs,
    "Gemm": _all_pairs,
    "MatMul": _all_pairs,
    "OneHot": lambda a: float(a[0].size) * _product(a[1]),
    "Pad": lambda a: math.prod(float(d) for d in a[0].shape) * _product(a[1] + 1) if len(a) > 1 else math.inf,
    "Range": _ranged,
    "Tile": _tiled,
    "BlackmanWindow": lambda a: _product(a[0]),
    "HammingWindow": lambda a: _product(a[0]),
    "HannWindow": lambda a: _product(a[0]),
}


def _estimated_elements(node: Any, inputs: Sequence[Array | None]) -> float:
    arrays = [a for a in inputs if a is not None]
    growth = _GROWTH.get(node.op_type)
    if growth is not None:
        try:
            return growth(arrays)
        except (IndexError, ValueError, ZeroDivisionError, TypeError, OverflowError):
            return math.inf  # without all that the op needs
    try:
        return float(math.prod(np.broadcast_shapes(*(a.shape for a in arrays))))
    except ValueError:
        return float(max((a.size for a in arrays), default=0))  # not broadcast: as large as what goes in


def _evaluate(node: Any, inputs: Sequence[Array | None], opset: int) -> tuple[Array, ...]:
    arrays = {n: a for n, a in zip(node.input, inputs, strict=True) if n and a is not None}
    graph = helper.make_graph(
        [node],
        "fold",
        [],
        [helper.make_tensor_value_info(o, onnx.TensorProto.UNDEFINED, None) for o in node.output if o],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return tuple(np.asarray(v) for v in ReferenceEvaluator(model).run(None, {}))


def _attribute(node: Any, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _gathered(node: Any, arrays: Sequence[Array]) -> Array:
    axis = _attribute(node, "axis", 0)
    return np.asarray(np.take(arrays[0], arrays[1], axis=axis))


def _cast(node: Any, arrays: Sequence[Array]) -> Array:
    dtype = helper.tensor_dtype_to_np_dtype(_attribute(node, "to", 0))
    return arrays[0].astype(dtype)


def _concatenated(node: Any, arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays, axis=_attribute(node, "axis", 0))


def _dequantised(node: Any, arrays: Sequence[Array]) -> Array:
    """Integers, a scale and a zero point for all, for one axis, or for blocks along one."""
    values, scale = arrays[0], arrays[1].astype(np.float32)
    zero = arrays[2].astype(np.float32) if len(arrays) > 2 else np.zeros((), np.float32)
    axis = _attribute(node, "axis", 1)
    block = _attribute(node, "block_size", 0)
    if block:
        rows = np.arange(values.shape[axis]) // block
        scale, zero = (np.take(a, rows, axis) if a.ndim else a for a in (scale, zero))
    elif scale.ndim == 1 and scale.size > 1:
        shape = [1] * values.ndim
        shape[axis] = scale.size
        scale, zero = scale.reshape(shape), zero.reshape(shape) if zero.size > 1 else zero
    return (values.astype(np.float32) - zero) * scale


# What chains of shapes are made of. The evaluator takes a millisecond a node, which large exports have thousands of.
_QUICK: Mapping[str, Callable[[Any, Sequence[Array]], Any]] = {
    "Add": lambda _n, a: a[0] + a[1],
    "Cast": _cast,
    "Concat": _concatenated,
    "DequantizeLinear": _dequantised,  # the evaluator lacks the older versions
    "Equal": lambda _n, a: a[0] == a[1],
    "Gather": _gathered,
    "Mul": lambda _n, a: a[0] * a[1],
    "Sub": lambda _n, a: a[0] - a[1],
}
