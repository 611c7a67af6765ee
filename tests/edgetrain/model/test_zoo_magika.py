"""Claims about Magika's model: only the softmax at its end is gone."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgetrain.errors import ModelError
from edgetrain.model.zoo import replace_head
from edgetrain.model.zoo_magika import cut_softmax, find_weights, magika

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("magika") is None, reason="pip install --no-deps magika==1.0.3"
)
Array = np.ndarray[Any, Any]


def run(model: Any, x: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {model.graph.input[0].name: x})[0])


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def spelled_out(*, last: str = "Div") -> Any:
    """x (batch, 3) times w, then a softmax in single steps."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("ReduceMax", ["scores"], ["most"], axes=[1]),
        helper.make_node("Sub", ["scores", "most"], ["shifted"]),
        helper.make_node("Exp", ["shifted"], ["powers"]),
        helper.make_node("ReduceSum", ["powers", "axes"], ["total"]),
        helper.make_node(last, ["powers", "total"], ["y"]),
    ]
    w = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "spelled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array([1]), "axes")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def test_the_softmax_of_what_is_left_is_the_old_output() -> None:
    model = spelled_out()
    before = model.SerializeToString()
    cut = cut_softmax(model, classes=4)
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_allclose(softmax(run(cut, x)), run(model, x), atol=1e-6)
    assert [node.op_type for node in cut.graph.node] == ["MatMul"]
    assert [tensor.name for tensor in cut.graph.initializer] == ["w"]
    assert model.SerializeToString() == before


def test_a_model_without_such_a_softmax_is_refused() -> None:
    with pytest.raises(ModelError, match="does not end in a softmax"):
        cut_softmax(spelled_out(last="Mul"), classes=4)


def test_a_missing_package_is_answered_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError) as caught:
        find_weights()
    assert caught.value.fix == "pip install --no-deps magika==1.0.3"


@needs_model
def test_the_real_model_gives_its_own_probabilities_and_takes_a_new_head() -> None:
    x = np.random.default_rng(0).integers(0, 257, (2, 2048)).astype(np.int32)
    np.testing.assert_allclose(softmax(run(magika(), x)), run(onnx.load(find_weights()), x), atol=1e-5)
    assert run(replace_head(magika(), 6, 0), x).shape == (2, 6)
