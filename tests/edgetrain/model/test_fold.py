from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from benchmarks.importing.onnx_models import model_of
from edgetrain.model.fold import fold_node, known_extent

node = helper.make_node


def _integers(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Add", [_integers(1, 2), _integers(3)], {}),
        ("Mul", [_integers(4, 5), _integers(2, 3)], {}),
        ("Sub", [_integers(4, 5), _integers(2, 3)], {}),
        ("Equal", [_integers(1, 2), _integers(1, 3)], {}),
        ("Cast", [_integers(1, 2)], {"to": 1}),
        ("Concat", [_integers(1, 2), _integers(3)], {"axis": 0}),
        ("Gather", [_integers(5, 6, 7), np.array(-1, np.int64)], {"axis": 0}),
        ("Slice", [_integers(5, 6, 7), _integers(1), _integers(3)], {}),
        ("Range", [np.array(0), np.array(6), np.array(2)], {}),
    ],
)
def test_a_folded_node_gives_what_the_reference_gives(op: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    names = [f"i{i}" for i in range(len(inputs))]
    made = node(op, names, ["y"], **attributes)
    folded = fold_node(made, inputs, 17)
    assert folded is not None
    model = model_of([made], inputs={}, outputs=["y"], stored=dict(zip(names, inputs, strict=True)))
    model.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(folded[0].dtype)
    (expected,) = ReferenceEvaluator(model).run(None, {})
    np.testing.assert_array_equal(folded[0], expected)
    assert folded[0].dtype == expected.dtype


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("ConstantOfShape", [_integers(1 << 20, 1 << 20)]),
        ("Range", [np.array(0), np.array(1 << 40), np.array(1)]),
        ("Range", [np.array(0), np.array(4), np.array(0)]),
        ("Range", [np.array(1 << 40)]),
        ("Expand", [np.zeros(1, np.float32), _integers(1 << 40)]),
        ("Tile", [np.zeros(4, np.float32), _integers(1 << 30)]),
        ("Add", [np.zeros((1 << 13, 1)), np.zeros((1, 1 << 13))]),
        ("MatMul", [np.zeros((1 << 13, 1)), np.zeros((1, 1 << 13))]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_fill_the_memory_is_not_evaluated(op: str, inputs: list[Any]) -> None:
    assert fold_node(node(op, [f"i{i}" for i in range(len(inputs))], ["y"]), inputs, 17) is None


def test_random_and_foreign_nodes_are_not_evaluated() -> None:
    assert fold_node(node("RandomNormal", [], ["y"], shape=[2]), [], 17) is None
    assert fold_node(node("Add", ["a", "b"], ["y"], domain="com.example"), [_integers(1), _integers(2)], 17) is None


def test_a_node_the_evaluator_refuses_stays() -> None:
    assert fold_node(node("Concat", ["a", "b"], ["y"], axis=3), [_integers(1), _integers(2)], 17) is None


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_are_dequantised_by_axis(axis: int) -> None:
    values = np.arange(6, dtype=np.int8).reshape(2, 3)
    scale = np.array([0.5, 2.0, 4.0][: values.shape[axis]], np.float32)
    zero = np.array([1, 0, 2][: values.shape[axis]], np.int8)
    folded = fold_node(node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=axis), [values, scale, zero], 17)
    assert folded is not None
    view = (-1, 1) if axis == 0 else (1, -1)
    expected = (values.astype(np.float32) - zero.reshape(view)) * scale.reshape(view)
    np.testing.assert_array_equal(folded[0], expected)


def test_a_part_of_a_shape_can_be_asked_for() -> None:
    np.testing.assert_array_equal(known_extent(node("Shape", ["x"], ["y"], start=1, end=-1), (2, 3, 4, 5)), [3, 4])
    np.testing.assert_array_equal(known_extent(node("Size", ["x"], ["y"]), (2, 3)), 6)
