"""What PyTorch's exporters do to a model that is to be trained, undone or told: from files made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgetrain.model.evaluation_form import evaluation_form
from edgetrain.model.export_warnings import EXPORT_LINE, export_warnings
from edgetrain.model.restore_biases import restore_biases
from edgetrain.model.tie_copies import tie_copies
from edgetrain.model.undo_exporter import undo_exporter
from tests.edgetrain.model.running import expected

TABLE = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)


def model(nodes: list[Any], weights: dict[str, Any], *, inputs: dict[str, tuple[int, list[int]]]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "exported",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="pytorch")


def marked(node: onnx.NodeProto, **metadata: str) -> onnx.NodeProto:
    keys = {
        "rule": "pkg.onnxscript.rewriter.rule_name",
        "call": "pkg.torch.onnx.fx_node",
        "scopes": "pkg.torch.onnx.name_scopes",
    }
    for name, value in metadata.items():
        entry = node.metadata_props.add()
        entry.key, entry.value = keys[name], value
    return node


def embedding_and_copy(copy: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["embedded"]),
        helper.make_node("MatMul", ["embedded", copy], ["y"]),
    ]
    weights = {"table": TABLE, copy: np.ascontiguousarray(TABLE.T)}
    return model(nodes, weights, inputs={"ids": (TensorProto.INT64, [2, 3])})


@pytest.mark.parametrize("copy", ["onnx::MatMul_12", "val_3"])
def test_the_exporters_copy_of_an_embedding_is_the_embedding_again(copy: str) -> None:
    proto = embedding_and_copy(copy)
    found = tie_copies(proto).model
    assert [t.name for t in found.graph.initializer] == ["table"]
    ids = {"ids": np.array([[0, 1, 2], [3, 4, 6]])}
    np.testing.assert_allclose(expected(found, ids)[0], expected(proto, ids)[0], rtol=1e-6)


def test_an_equal_head_with_a_name_of_its_own_and_a_glob_that_separates_stay_as_they_are() -> None:
    proto = embedding_and_copy("head.weight")
    assert tie_copies(proto).model is proto
    proto = embedding_and_copy("val_3")
    assert tie_copies(proto, separate=["val_*"]).model is proto


@pytest.mark.parametrize(
    ("op", "weight", "data", "outputs"),
    [("Gemm", (4, 3), [2, 4], 3), ("Conv", (5, 4, 1), [2, 4, 6], 5), ("ConvTranspose", (4, 5, 1), [2, 4, 6], 5)],
)
def test_a_zero_bias_that_was_left_out_comes_back_by_its_name(
    op: str, weight: tuple[int, ...], data: list[int], outputs: int
) -> None:
    node = marked(
        helper.make_node(op, ["x", "head.weight"], ["y"]),
        rule=f"RemoveOptionalBiasFrom{op}",
        call="call_function[...](args = (%x, %p_deep_head_weight, %p_deep_head_bias))",
        scopes="['', 'deep', 'deep.head', 'linear']",
    )
    weights = {"head.weight": np.ones(weight, np.float32)}
    proto = model([node], weights, inputs={"x": (TensorProto.FLOAT, data)})
    found = restore_biases(proto).model
    bias = {t.name: numpy_helper.to_array(t) for t in found.graph.initializer}["deep.head.bias"]
    assert bias.shape == (outputs,)
    assert not bias.any()
    x = {"x": np.random.default_rng(1).standard_normal(data).astype(np.float32)}
    np.testing.assert_array_equal(expected(found, x)[0], expected(proto, x)[0])


def test_a_layer_that_never_had_a_bias_gets_none() -> None:
    call = "call_function[...](args = (%x, %p_head_weight, None))"
    node = marked(helper.make_node("Gemm", ["x", "w"], ["y"]), rule="RemoveOptionalBiasFromGemm", call=call)
    proto = model([node], {"w": np.ones((4, 3), np.float32)}, inputs={"x": (TensorProto.FLOAT, [2, 4])})
    assert restore_biases(proto).model is proto


def normalised(**attributes: int) -> onnx.ModelProto:
    names = ["scale", "shift", "mean", "variance"]
    outputs = ["h", "new_mean", "new_variance"] if attributes else ["h"]
    nodes = [
        helper.make_node("BatchNormalization", ["x", *names], outputs, **attributes),
        helper.make_node("Dropout", ["h", "ratio", "is_training"], ["y"]),
    ]
    weights: dict[str, Any] = {name: np.full(4, i + 1, np.float32) for i, name in enumerate(names)}
    weights |= {"ratio": np.array(0.5, np.float32), "is_training": np.array(True)}
    return model(nodes, weights, inputs={"x": (TensorProto.FLOAT, [2, 4])})


def test_what_was_exported_in_training_mode_is_used_as_in_evaluation() -> None:
    found = evaluation_form(normalised(training_mode=1))
    norm, dropout = found.model.graph.node
    assert list(norm.output) == ["h"]
    assert not [a for a in norm.attribute if a.name == "training_mode"]
    assert list(dropout.input) == ["h", "ratio"]
    x = np.random.default_rng(2).standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(expected(found.model, {"x": x})[0], (x - 3) / np.sqrt(4 + 1e-5) + 2, rtol=1e-5)


def test_new_statistics_that_are_read_keep_the_training_mode() -> None:
    proto = normalised(training_mode=1)
    proto.graph.node[1].input[0] = "new_mean"
    del proto.graph.node[1].input[1:]
    assert any(a.name == "training_mode" for a in evaluation_form(proto).model.graph.node[0].attribute)


def convolution(*names: str, rule: str = "") -> onnx.ModelProto:
    node = helper.make_node("Conv", ["x", *names], ["y"])
    shapes = [(5, 4, 1), (5,)]
    weights = {name: np.ones(shape, np.float32) for name, shape in zip(names, shapes, strict=False)}
    return model([marked(node, rule=rule) if rule else node], weights, inputs={"x": (TensorProto.FLOAT, [2, 4, 6])})


def test_a_folded_batch_norm_is_told_with_the_line_that_keeps_it() -> None:
    by_name = convolution("onnx::Conv_12", "onnx::Conv_13")
    by_metadata = convolution("conv.weight", rule="FuseBatchNormIntoConv, RemoveOptionalBiasFromConv")
    for proto in (by_name, by_metadata):
        (line,) = undo_exporter(proto).warnings
        assert "folded BatchNorm into one layer" in line
        assert EXPORT_LINE in line


def test_a_convolution_whose_weight_alone_was_computed_had_no_batch_norm() -> None:
    assert export_warnings(convolution("onnx::Conv_12", "conv.bias")) == ()
    assert export_warnings(convolution("conv.weight", "conv.bias")) == ()
