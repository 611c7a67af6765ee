"""Claims about what a model's file says of its classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgetrain.model.class_outputs import READING_KEY, class_names_of, class_outputs
from edgetrain.model.zoo import build_zoo_model


def dense(*, shape: list[object] | None, weight: str = "fc.weight", tail: str = "") -> onnx.ModelProto:
    """6 features to 5 classes, the output declared with that shape."""
    nodes = [helper.make_node("Gemm", ["x", weight, "fc.bias"], ["scores"], name="/fc/Gemm", transB=1)]
    if tail:
        nodes.append(helper.make_node(tail, ["scores"], ["y"], name="tail"))
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, shape)],
        [
            numpy_helper.from_array(np.ones((5, 6), np.float32), weight),
            numpy_helper.from_array(np.zeros(5, np.float32), "fc.bias"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("shape", [["batch", 5], ["batch", None], ["batch", "classes"], None])
def test_outputs_are_counted_whatever_the_file_declares(shape: list[object] | None) -> None:
    found = class_outputs(dense(shape=shape))
    assert found is not None
    assert found.count == 5
    assert found.head is not None
    assert (found.head.name, found.head.inputs, found.head.outputs) == ("fc", 6, 5)


def test_a_weight_without_a_telling_name_is_known_by_its_node() -> None:
    found = class_outputs(dense(shape=["batch", 5], weight="onnx::Gemm_12"))
    assert found is not None
    assert found.head is not None
    assert found.head.name == "/fc/Gemm"


def test_outputs_of_another_rank_are_no_classes() -> None:
    model = dense(shape=["batch", 5])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 5, 4, 4]))
    assert class_outputs(model) is None


def test_a_head_that_cannot_be_replaced_says_why() -> None:
    found = class_outputs(dense(shape=["batch", 5], tail="Relu"))
    assert found is not None
    assert found.head is None
    assert "comes from Relu" in found.why


def test_weights_in_another_file_are_not_needed(tmp_path: Path) -> None:
    onnx.save(dense(shape=["batch", 5]), str(tmp_path / "m.onnx"), save_as_external_data=True, size_threshold=0)
    for side_file in set(tmp_path.iterdir()) - {tmp_path / "m.onnx"}:
        side_file.unlink()
    found = class_outputs(onnx.load(str(tmp_path / "m.onnx"), load_external_data=False))
    assert found is not None
    assert found.head is not None
    assert (found.count, found.head.inputs) == (5, 6)


def test_the_head_of_a_zoo_model_is_found() -> None:
    found = class_outputs(build_zoo_model("digits-cnn"))
    assert found is not None
    assert found.head is not None
    assert (found.count, found.head.name) == (10, "head")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (json.dumps({"class_names": ["b", "a"], "columns": []}), ("b", "a")),
        (json.dumps({"class_names": [1, 2]}), ()),
        (json.dumps(["a"]), ()),
        ("{", ()),
    ],
)
def test_names_are_those_that_a_run_left_in_the_file(text: str, names: tuple[str, ...]) -> None:
    model = dense(shape=["batch", 5])
    helper.set_model_props(model, {READING_KEY: text})
    assert class_names_of(model) == names


def test_names_that_are_not_as_many_as_the_outputs_are_not_believed() -> None:
    model = dense(shape=["batch", 5])
    helper.set_model_props(model, {READING_KEY: json.dumps({"class_names": ["a", "b"]})})
    found = class_outputs(model)
    assert found is not None
    assert found.names == ()
