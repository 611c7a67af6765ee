from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from edgetrain.errors import UnsupportedError
from edgetrain.model.importer import import_model
from tests.edgetrain.model.onnx_models import mlp, model_of

node = helper.make_node


def test_parameters_inputs_and_outputs_keep_their_names() -> None:
    model = import_model(mlp(), name="mlp", batch=6)
    assert list(model.parameters) == ["fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias"]
    assert [(i.name, i.shape, i.dtype) for i in model.inputs] == [("x", (6, 4), "float32")]
    assert model.outputs == ("logits",)
    assert [str(p.name) for p in model.function.params] == ["x", *model.parameters]
    assert tuple(int(d) for d in model.function.body.body.ty.fields[0].shape) == (6, 3)


def test_every_bound_variable_remembers_its_onnx_node() -> None:
    model = import_model(mlp(), name="mlp", batch=1)
    assert {"Gemm `fc0`", "Relu `relu0`", "Gemm `fc1`"} == set(model.sources.values())


def test_all_unknown_ops_are_named_in_one_error() -> None:
    model = model_of(
        [
            node("Mystery", ["x"], ["a"], name="first", domain="com.example"),
            node("Relu", ["a"], ["b"], name="fine"),
            node("NoSuchOp", ["b"], ["c"], name="second"),
            node("Riddle", ["c"], ["y"], domain="org.other"),
        ],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        domains=["com.example", "org.other"],
    )
    with pytest.raises(UnsupportedError) as caught:
        import_model(model, name="odd", batch=1)
    message = caught.value.what
    assert message.startswith("3 nodes of `odd` cannot be imported:")
    assert "com.example.Mystery `first`: a custom op of domain `com.example`" in message
    assert "NoSuchOp `second`: no converter for op `NoSuchOp`" in message
    assert "org.other.Riddle `y`" in message
    assert "fine" not in message


def test_control_flow_is_named() -> None:
    branch = helper.make_graph([node("Relu", ["x"], ["z"])], "b", [], [helper.make_empty_tensor_value_info("z")])
    model = model_of(
        [node("Loop", ["", "", "x"], ["y"], name="repeat", body=branch)], inputs={"x": ["n", 3]}, outputs=["y"]
    )
    with pytest.raises(UnsupportedError, match="Loop `repeat`: control flow"):
        import_model(model, name="looping", batch=1)


def test_a_stock_converter_that_fails_names_its_node() -> None:
    model = model_of(
        [node("TopK", ["x", "k"], ["y", "i"], name="best")],
        inputs={"x": ["n", 3], "k": ["n"]},
        outputs=["y"],
    )
    with pytest.raises(UnsupportedError, match="TopK `best`: the converter failed"):
        import_model(model, name="model", batch=1)


def test_nodes_that_fail_independently_are_all_named_and_their_readers_are_not() -> None:
    model = model_of(
        [
            node("Einsum", ["x"], ["a"], name="diagonal", equation="ii->i"),
            node("Relu", ["a"], ["a2"], name="reader"),
            node("AveragePool", ["v"], ["b"], name="volume", kernel_shape=[2, 2, 2]),
        ],
        inputs={"x": ["n", 2], "v": ["n", 1, 4, 4, 4]},
        outputs=["a2", "b"],
    )
    with pytest.raises(UnsupportedError) as caught:
        import_model(model, name="model", batch=2)
    assert caught.value.what.startswith("2 nodes")
    assert "diagonal" in caught.value.what
    assert "volume" in caught.value.what
    assert "reader" not in caught.value.what


def test_bounds_computed_from_data_are_unsupported() -> None:
    model = model_of(
        [node("ReduceMax", ["x"], ["top"], keepdims=0), node("Clip", ["x", "", "top"], ["y"], name="clip")],
        inputs={"x": ["n", 3]},
        outputs=["y"],
    )
    with pytest.raises(UnsupportedError, match="Clip `clip`: its bounds are computed"):
        import_model(model, name="model", batch=1)


def test_a_batch_fixed_inside_the_model_is_explained() -> None:
    model = model_of(
        [node("Reshape", ["x", "target"], ["y"], name="view")],
        inputs={"x": ["n", 6]},
        outputs=["y"],
        stored={"target": np.array([1, 6], np.int64)},
    )
    with pytest.raises(UnsupportedError, match=r"Reshape `view`: it reshapes \[4, 6\] to \[1, 6\]"):
        import_model(model, name="model", batch=4)


def test_shapes_that_contradict_each_other_name_the_node() -> None:
    model = model_of(
        [node("MatMul", ["x", "w"], ["y"], name="product")],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored={"w": np.ones((5, 2), np.float32)},
    )
    with pytest.raises(UnsupportedError, match="MatMul `product`: its inputs do not fit together"):
        import_model(model, name="model", batch=1)
