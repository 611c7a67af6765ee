from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from edgetrain.errors import ModelError
from edgetrain.model.normalise import MAXIMUM_FOLDED_BYTES, normalise
from tests.edgetrain.model.onnx_models import mlp, model_of

node = helper.make_node


def _integers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_a_shape_computed_from_the_batch_becomes_a_constant() -> None:
    """Shape → Gather → Unsqueeze → Concat → Reshape, as exporters write `x.view(x.size(0), -1)`."""
    model = model_of(
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "zero"], ["batch"], axis=0),
            node("Unsqueeze", ["batch", "axes"], ["batch1"]),
            node("Concat", ["batch1", "rest"], ["target"], axis=0),
            node("Reshape", ["x", "target"], ["y"]),
        ],
        inputs={"x": ["n", 3, 4]},
        outputs=["y"],
        stored={"zero": np.array(0, np.int64), "axes": _integers(0), "rest": _integers(-1)},
    )
    graph = normalise(model, batch=5)
    assert [n.op_type for n in graph.nodes] == ["Reshape"]
    np.testing.assert_array_equal(graph.constants["target"], [5, -1])
    assert len(graph.rewrites) == 4


def test_a_shape_of_a_computed_value_is_known_too() -> None:
    model = model_of(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            node("Shape", ["t"], ["shape"], start=0, end=2),
            node("Size", ["t"], ["size"]),
            node("Unsqueeze", ["size", "axes"], ["size1"]),
            node("Concat", ["shape", "size1"], ["all"], axis=0),
            node("Cast", ["all"], ["y"], to=1),
            node("Mul", ["x", "x"], ["z"]),
        ],
        inputs={"x": ["n", 3, 4]},
        outputs=["z", "y"],
        stored={"axes": _integers(0)},
    )
    graph = normalise(model, batch=2)
    assert [n.op_type for n in graph.nodes] == ["Mul"]
    np.testing.assert_array_equal(graph.constants["y"], [3, 2, 24])


def test_dropout_and_identity_are_dropped_and_reported() -> None:
    model = model_of(
        [
            node("Identity", ["x"], ["a"], name="first"),
            node("Dropout", ["a"], ["b"], name="second"),
            node("Relu", ["b"], ["c"]),
            node("Identity", ["c"], ["y"], name="third"),
        ],
        inputs={"x": ["n", 3]},
        outputs=["y"],
    )
    graph = normalise(model, batch=1)
    assert [(n.op_type, list(n.input)) for n in graph.nodes] == [("Relu", ["x"])]
    assert graph.aliases["y"] == "c"
    assert [line.split(" dropped")[0] for line in graph.rewrites] == [
        "Identity `first`",
        "Dropout `second`",
        "Identity `third`",
    ]


def test_a_dropout_of_another_domain_stays() -> None:
    model = model_of(
        [node("Dropout", ["x"], ["y"], domain="com.example")],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        domains=["com.example"],
    )
    assert len(normalise(model, batch=1).nodes) == 1


def test_weights_in_constant_nodes_are_parameters() -> None:
    weight = np.ones((3, 2), np.float32)
    model = model_of(
        [
            node("Constant", [], ["w"], value=numpy_helper.from_array(weight)),
            node("Constant", [], ["one"], value_float=1.0),
            node("MatMul", ["x", "w"], ["product"]),
            node("Add", ["product", "one"], ["y"]),
        ],
        inputs={"x": ["n", 3]},
        outputs=["y"],
    )
    graph = normalise(model, batch=1)
    assert set(graph.weights) == {"w"}
    assert graph.constants["one"] == np.float32(1.0)


def test_a_setting_is_no_parameter_although_it_is_a_float_tensor() -> None:
    model = model_of(
        [node("Resize", ["x", "", "scales"], ["y"], mode="nearest")],
        inputs={"x": ["n", 1, 2, 2]},
        outputs=["y"],
        stored={"scales": np.array([1, 1, 2, 2], np.float32)},
    )
    graph = normalise(model, batch=1)
    assert dict(graph.weights) == {}
    np.testing.assert_array_equal(graph.constants["scales"], [1, 1, 2, 2])


def test_a_large_result_is_not_folded() -> None:
    elements = MAXIMUM_FOLDED_BYTES // 4 + 1
    model = model_of(
        [
            node("ConstantOfShape", ["shape"], ["zeros"]),
            node("Add", ["x", "zeros"], ["y"]),
        ],
        inputs={"x": ["n", elements]},
        outputs=["y"],
        stored={"shape": _integers(elements)},
    )
    assert [n.op_type for n in normalise(model, batch=1).nodes] == ["ConstantOfShape", "Add"]


def test_nodes_and_weights_nobody_reads_are_left_out() -> None:
    model = model_of(
        [node("Relu", ["x"], ["y"]), node("MatMul", ["x", "w"], ["unused"])],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored={"w": np.ones((3, 2), np.float32)},
    )
    graph = normalise(model, batch=1)
    assert [n.op_type for n in graph.nodes] == ["Relu"]
    assert dict(graph.weights) == {}


def test_the_given_model_is_not_changed() -> None:
    model = mlp()
    before = model.SerializeToString()
    normalise(model, batch=4)
    assert model.SerializeToString() == before


def test_a_fixed_batch_that_contradicts_is_named_with_both_numbers() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], inputs={"x": [4, 3]}, outputs=["y"])
    assert normalise(model, batch=4).inputs == {"x": (4, 3)}
    with pytest.raises(ModelError, match="input `x` has a fixed batch of 4, not 8"):
        normalise(model, batch=8)


def test_every_input_with_unknown_dimensions_is_listed() -> None:
    model = model_of(
        [node("MatMul", ["a", "b"], ["y"])],
        inputs={"a": ["n", "length", 3], "b": ["n", 3, "width"]},
        outputs=["y"],
    )
    with pytest.raises(ModelError) as caught:
        normalise(model, batch=2)
    assert "input `a` has unknown dimensions ['n', 'length', '?']" in caught.value.what
    assert "input `b` has unknown dimensions ['n', '?', 'width']" in caught.value.what
    assert "model.inputs.NAME" in caught.value.fix


def test_given_shapes_settle_unknown_dimensions() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], inputs={"x": ["n", "length"]}, outputs=["y"])
    assert normalise(model, batch=2, shapes={"x": (2, 7)}).inputs == {"x": (2, 7)}


def test_a_model_without_inputs_is_rejected() -> None:
    model = model_of([node("Relu", ["w"], ["y"])], inputs={}, outputs=["y"], stored={"w": np.ones(3, np.float32)})
    with pytest.raises(ModelError, match="no inputs"):
        normalise(model, batch=1)
