"""Claims about the models that come with edgetrain."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgetrain.errors import ModelError
from edgetrain.model.zoo import build_zoo_model, replace_head, zoo_names

CLASSES = {"digits-cnn": 10, "digits-cnn-bn": 10, "fashion-cnn": 10, "voice-cnn": 5, "watch-cnn": 7}
SMALL = tuple(CLASSES)


def run(model: Any, batch: int = 3, seed: int = 0) -> np.ndarray[Any, Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim][1:]
    x = np.random.default_rng(seed).standard_normal((batch, *shape)).astype(np.float32)
    (y,) = session.run(None, {model.graph.input[0].name: x})
    assert isinstance(y, np.ndarray)
    return y


def dense_model(*, op: str, after: str = "", shared: bool = False) -> Any:
    """x (batch, 3) times w (3, 5), with a bias for MatMul added by its own node."""
    nodes = [helper.make_node(op, ["x", "w"] if op == "MatMul" else ["x", "w", "b"], ["y"])]
    if op == "MatMul":
        nodes.append(helper.make_node("Add", ["b", "y"], ["z"]))
    last = nodes[-1].output[0]
    if shared:
        nodes.insert(0, helper.make_node("Shape", ["w"], ["unused"]))
    if after:
        nodes.append(helper.make_node(after, [last], ["out"]))
    weights = {"w": np.ones((3, 5), np.float32), "b": np.ones(5, np.float32)}
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("out" if after else last, TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("name", SMALL)
def test_a_model_is_the_same_bytes_each_time(name: str) -> None:
    assert build_zoo_model(name).SerializeToString() == build_zoo_model(name).SerializeToString()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_model_takes_any_batch_and_tells_samples_apart(name: str, batch: int) -> None:
    logits = run(build_zoo_model(name), batch)
    assert logits.shape == (batch, CLASSES[name])
    assert np.isfinite(logits).all()
    assert logits.std(axis=1).min() > 0.1


def test_an_unknown_model_is_answered_with_the_close_ones() -> None:
    with pytest.raises(ModelError, match="did you mean `digits-cnn`"):
        build_zoo_model("digit-cnn")
    assert set(SMALL) < set(zoo_names())


@pytest.mark.parametrize("name", SMALL)
def test_a_new_head_changes_the_head_and_nothing_else(name: str) -> None:
    old = build_zoo_model(name)
    new = replace_head(old, 7, seed=1)
    assert run(new).shape == (3, 7)
    before = {t.name: numpy_helper.to_array(t) for t in old.graph.initializer}
    after = {t.name: numpy_helper.to_array(t) for t in new.graph.initializer}
    changed = {key for key in before if not np.array_equal(before[key], after[key])}
    assert changed <= {"head.weight", "head.bias"}
    assert after["head.weight"].shape[0] == after["head.bias"].shape[0] == 7
    onnx.checker.check_model(new, full_check=True)


def test_a_new_head_depends_on_its_seed_only() -> None:
    model = build_zoo_model("digits-cnn")
    heads = [replace_head(model, 3, seed).SerializeToString() for seed in (0, 0, 1)]
    assert heads[0] == heads[1] != heads[2]


def test_replacing_a_head_leaves_the_given_model_as_it_was() -> None:
    model = build_zoo_model("digits-cnn")
    before = model.SerializeToString()
    replace_head(model, 3, 0)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("after", ["", "Softmax", "Identity"])
def test_a_head_is_found_behind_its_bias_and_elementwise_nodes(op: str, after: str) -> None:
    new = replace_head(dense_model(op=op, after=after), 2, 0)
    assert run(new).shape == (3, 2)
    onnx.checker.check_model(new, full_check=True)


def test_a_model_without_a_dense_layer_at_its_end_is_refused() -> None:
    with pytest.raises(ModelError, match="no dense layer"):
        replace_head(dense_model(op="Gemm", after="Relu"), 2, 0)


def test_a_head_whose_weight_others_use_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot be replaced"):
        replace_head(dense_model(op="Gemm", shared=True), 2, 0)
