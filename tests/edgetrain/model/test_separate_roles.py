"""Which of the tensors that a file stores once become several, and which stay one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models.merged import merged_by_identity, merged_in_place, untrained_batch_norm_cnn
from edgetrain.errors import UsageError
from edgetrain.model.separate_roles import Separation, separate_roles
from tests.edgetrain.model.running import expected

IMAGE = np.random.default_rng(0).standard_normal((2, 3, 10, 10)).astype(np.float32)


def stored(proto: onnx.ModelProto) -> dict[str, Any]:
    return {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}


def graph_of(
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, Any],
    *,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    producer: str = "",
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "shared",
        inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name=producer)


def weight(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def readers(found: Separation, op: str, position: int) -> list[str]:
    return [node.input[position] for node in found.model.graph.node if node.op_type == op]


def test_identities_of_torchscript_give_each_parameter_its_own_name_back() -> None:
    copies = untrained_batch_norm_cnn()
    merged = merged_by_identity(copies)
    assert len(merged.graph.initializer) < len(copies.graph.initializer)
    found = separate_roles(merged)
    assert {n: a.tobytes() for n, a in stored(found.model).items()} == {
        n: a.tobytes() for n, a in stored(copies).items()
    }
    assert [list(n.input) for n in found.model.graph.node] == [list(n.input) for n in copies.graph.node]
    assert len(found.warnings) == 1
    assert "model.tie" in found.warnings[0]


def test_without_identities_no_tensor_keeps_two_roles_or_two_layers() -> None:
    found = separate_roles(merged_in_place(untrained_batch_norm_cnn()))
    norms = [list(n.input)[1:] for n in found.model.graph.node if n.op_type == "BatchNormalization"]
    assert len({name for names in norms for name in names}) == 8
    onnx.checker.check_model(found.model)


@pytest.mark.parametrize("merge", [merged_by_identity, merged_in_place])
def test_the_separated_model_computes_the_same_and_the_given_one_is_left_alone(merge: Any) -> None:
    merged = merge(untrained_batch_norm_cnn())
    before = merged.SerializeToString(deterministic=True)
    found = separate_roles(merged)
    np.testing.assert_array_equal(
        expected(found.model, {"image": IMAGE})[0], expected(merged, {"image": IMAGE})[0], strict=True
    )
    assert merged.SerializeToString(deterministic=True) == before


def test_a_model_that_shares_nothing_is_returned_as_it_is() -> None:
    proto = untrained_batch_norm_cnn()
    found = separate_roles(proto)
    assert found.model is proto
    assert (found.rewrites, found.warnings) == ((), ())


def dense_pair(producer: str = "", **weights: Any) -> onnx.ModelProto:
    """Two layers with weights `v` and `w`, both with the bias `b`."""
    nodes = [helper.make_node("Gemm", ["x", "v", "b"], ["h"]), helper.make_node("Gemm", ["h", "w", "b"], ["y"])]
    return graph_of(nodes, {"v": weight(1, 4, 4), "w": weight(2, 4, 4), "b": np.zeros(4), **weights}, producer=producer)


def test_layers_with_weights_of_their_own_get_biases_of_their_own() -> None:
    found = separate_roles(dense_pair())
    assert len(set(readers(found, "Gemm", 2))) == 2
    assert "`b`" in found.warnings[0]


def test_a_layer_that_is_called_twice_keeps_one_weight_and_one_bias() -> None:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Gemm", ["h", "w", "b"], ["y"])]
    proto = graph_of(nodes, {"w": weight(1, 4, 4), "b": np.zeros(4)})
    found = separate_roles(proto)
    assert found.model is proto
    assert found.warnings == ()
    assert found.rewrites == tuple(f"`{name}` stays one parameter, read by 2 nodes" for name in ("w", "b"))


def embedding_and_head(producer: str = "") -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["embedded"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["embedded", "turned"], ["y"]),
    ]
    ids = [helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 3])]
    return graph_of(nodes, {"table": weight(1, 7, 4)}, inputs=ids, producer=producer)


@pytest.mark.parametrize("producer", ["", "pytorch"])
def test_an_embedding_and_its_head_stay_one_parameter(producer: str) -> None:
    found = separate_roles(embedding_and_head(producer))
    assert list(stored(found.model)) == ["table"]
    assert found.warnings == ()


def test_a_vector_that_one_layer_reads_in_several_ways_stays_one() -> None:
    # Snake: x + sin(a * x) ** 2 / a
    nodes = [
        helper.make_node("Mul", ["x", "a"], ["scaled"]),
        helper.make_node("Sin", ["scaled"], ["wave"]),
        helper.make_node("Div", ["wave", "a"], ["shrunk"]),
        helper.make_node("Add", ["x", "shrunk"], ["y"]),
    ]
    found = separate_roles(graph_of(nodes, {"a": np.ones(4)}))
    assert list(stored(found.model)) == ["a"]


def test_the_shape_of_a_weight_is_no_use_of_it() -> None:
    nodes = [helper.make_node("Shape", ["b"], ["size"]), helper.make_node("Add", ["x", "b"], ["y"])]
    assert separate_roles(graph_of(nodes, {"b": np.ones(4)})).rewrites == ()


def scoped(node: onnx.NodeProto, module: str) -> onnx.NodeProto:
    """As PyTorch's newer exporter marks where a node came from."""
    entry = node.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", str(["", *([module] if module else []), "op"])
    return node


def normalised(*layers: tuple[str, str, str]) -> onnx.ModelProto:
    """LayerNorms (module, scale, shift) one after the other, with tensors of PyTorch's names."""
    nodes, x = [], "x"
    for i, (module, scale, shift) in enumerate(layers):
        y = "y" if i + 1 == len(layers) else f"h{i}"
        nodes.append(scoped(helper.make_node("LayerNormalization", [x, scale, shift], [y]), module))
        x = y
    names = dict.fromkeys(name for _, *pair in layers for name in pair)
    values = {name: np.full(4, 1.0 if name.endswith("weight") else 0.0) for name in names}
    return graph_of(nodes, values, producer="pytorch")


def test_the_module_that_reads_a_tensor_decides_and_names_it() -> None:
    shared = ("a.weight", "a.bias")
    found = separate_roles(normalised(("b", *shared), ("a", *shared), ("a", *shared)))
    assert readers(found, "LayerNormalization", 1) == ["b.weight", "a.weight", "a.weight"]
    assert readers(found, "LayerNormalization", 2) == ["b.bias", "a.bias", "a.bias"]


def copied_layers(size: int, *modules: str) -> onnx.ModelProto:
    nodes, x = [], "x"
    for i, module in enumerate(modules):
        y = "y" if i + 1 == len(modules) else f"h{i}"
        nodes.append(scoped(helper.make_node("MatMul", [x, "a.weight"], [y]), module))
        x = y
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, size])]
    return graph_of(nodes, {"a.weight": weight(0, size, size)}, inputs=inputs, producer="pytorch")


def test_small_matrices_of_copied_layers_are_separated_and_large_ones_cannot_be_merged_ones() -> None:
    assert readers(separate_roles(copied_layers(32, "a", "b")), "MatMul", 1) == ["a.weight", "b.weight"]
    assert readers(separate_roles(copied_layers(33, "a", "b")), "MatMul", 1) == ["a.weight", "a.weight"]
    assert readers(separate_roles(copied_layers(32, "a", "a")), "MatMul", 1) == ["a.weight", "a.weight"]


def test_views_of_a_separated_tensor_are_copied_with_it() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["b", "axes"], ["row"]),
        helper.make_node("MatMul", ["x", "v"], ["p"]),
        helper.make_node("Add", ["p", "row"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["q"]),
        helper.make_node("Add", ["q", "row"], ["y"]),
    ]
    proto = graph_of(nodes, {"v": weight(1, 4, 4), "w": weight(2, 4, 4), "b": np.arange(4)})
    proto.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    found = separate_roles(proto)
    assert len(set(readers(found, "Unsqueeze", 0))) == 2
    x = {"x": weight(3, 2, 4).astype(np.float32)}
    np.testing.assert_array_equal(expected(found.model, x)[0], expected(proto, x)[0])


def test_tie_keeps_what_would_be_separated_but_never_a_statistic() -> None:
    assert separate_roles(dense_pair(), tie=["b"]).warnings == ()
    merged = merged_by_identity(untrained_batch_norm_cnn())
    found = separate_roles(merged, tie=["*"])
    for statistic in (3, 4):
        for learned in (1, 2):
            assert not set(readers(found, "BatchNormalization", statistic)) & set(
                readers(found, "BatchNormalization", learned)
            )
    assert len(set(readers(found, "BatchNormalization", 1))) == 1


def test_separate_parts_what_would_stay_tied() -> None:
    found = separate_roles(embedding_and_head(), separate=["ta*"])
    assert len(stored(found.model)) == 2


def test_a_glob_that_names_no_shared_tensor_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"model\.separate = `c\*`") as raised:
        separate_roles(dense_pair(), separate=["c*"])
    assert "`b`" in raised.value.why
    with pytest.raises(UsageError, match=r"model\.tie"):
        separate_roles(untrained_batch_norm_cnn(), tie=["*"])


def test_old_files_that_declare_their_weights_as_inputs_stay_valid() -> None:
    proto = dense_pair()
    proto.ir_version = 3
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4]))
    for name, array in stored(proto).items():
        proto.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape))
    onnx.checker.check_model(separate_roles(proto).model)
