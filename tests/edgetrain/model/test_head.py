"""Claims about finding and replacing a classifier's head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgetrain.errors import ModelError
from edgetrain.model.head import replace_head

OLD, NEW = 5, 3


def model_of(
    nodes: Sequence[Any], weights: dict[str, Any], *, image: Sequence[int], output: Sequence[object]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *image])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, ["batch", *output])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return onnx.shape_inference.infer_shapes(model)


def node(op: str, inputs: str, output: str, **attributes: object) -> Any:
    return helper.make_node(op, inputs.split(), [output], name=f"node.{output}", **attributes)


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def convolutional(*tail: Any, output: Sequence[object] = (OLD,)) -> onnx.ModelProto:
    """A 3 × 3 convolution, then a pointwise one with a channel for each class, then `tail`."""
    weights = {"w0": normal(4, 2, 3, 3), "w": normal(OLD, 4, 1, 1), "b": normal(OLD), "shape": np.array([0, OLD])}
    used = {name for n in tail for name in n.input} | {"w0", "w", "b"}
    nodes = [node("Conv", "x w0", "features"), node("Conv", "features w b", "scores"), *tail]
    return model_of(nodes, {n: v for n, v in weights.items() if n in used}, image=(2, 6, 6), output=output)


def run(model: onnx.ModelProto) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    (y,) = session.run(None, {"x": np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32)})
    return y


CONVOLUTIONAL = {
    "pool-flatten": convolutional(node("GlobalAveragePool", "scores", "pooled"), node("Flatten", "pooled", "y")),
    "pool-reshape": convolutional(node("GlobalAveragePool", "scores", "pooled"), node("Reshape", "pooled shape", "y")),
    "pool-flatten-softmax": convolutional(
        node("GlobalAveragePool", "scores", "pooled"), node("Flatten", "pooled", "flat"), node("Softmax", "flat", "y")
    ),
    "relu-pool-squeeze": convolutional(  # as SqueezeNet ends
        node("Relu", "scores", "positive"), node("ReduceMean", "positive", "y", axes=[2, 3], keepdims=0)
    ),
    "a-class-for-each-pixel": convolutional(node("Softmax", "scores", "y", axis=1), output=(OLD, 4, 4)),
}


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_a_pointwise_convolution_is_found_as_the_head(name: str) -> None:
    model = CONVOLUTIONAL[name]
    new = replace_head(model, NEW, seed=0)
    onnx.checker.check_model(new, full_check=True)
    before, after = run(model), run(new)
    assert after.shape == tuple(NEW if s == OLD else s for s in before.shape)
    weights = {t.name: numpy_helper.to_array(t) for t in new.graph.initializer}
    assert weights["w"].shape == (NEW, 4, 1, 1)
    np.testing.assert_array_equal(weights["b"], np.zeros(NEW))
    np.testing.assert_array_equal(weights["w0"], normal(4, 2, 3, 3))


def test_a_shared_shape_constant_keeps_its_value_for_the_others() -> None:
    model = convolutional(node("GlobalAveragePool", "scores", "pooled"), node("Reshape", "pooled shape", "y"))
    new = replace_head(model, NEW, seed=0)
    assert [0, OLD] in [numpy_helper.to_array(t).tolist() for t in new.graph.initializer if t.name == "shape"]


DENSE_WEIGHTS = {"w0": normal(4, 6), "w": normal(OLD, 6), "b": normal(OLD)}
TRANSPOSED = model_of(
    [
        node("MatMul", "x w0", "hidden"),
        node("Transpose", "w", "flipped", perm=[1, 0]),
        node("MatMul", "hidden flipped", "product"),
        node("Add", "product b", "y"),
    ],
    DENSE_WEIGHTS,
    image=(4,),
    output=(OLD,),
)


def test_a_weight_behind_a_transpose_keeps_its_layout() -> None:
    new = replace_head(TRANSPOSED, NEW, seed=0)
    assert run(new).shape == (2, NEW)
    assert {t.name: list(t.dims) for t in new.graph.initializer}["w"] == [NEW, 6]


def test_a_weight_in_a_constant_node_is_replaced_there() -> None:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(normal(4, OLD)))
    model = model_of([constant, node("MatMul", "x w", "y")], {}, image=(4,), output=(OLD,))
    assert run(replace_head(model, NEW, seed=0)).shape == (2, NEW)


@pytest.mark.parametrize("name", ["node.y", "y", "w"])
def test_a_head_is_found_by_the_name_of_its_node_its_output_or_its_weight(name: str) -> None:
    model = model_of([node("Gemm", "x w", "y")], {"w": normal(4, OLD)}, image=(4,), output=(OLD,))
    assert run(replace_head(model, NEW, seed=0, head=name)).shape == (2, NEW)


def test_a_named_head_may_have_nodes_behind_it_that_a_search_does_not_pass() -> None:
    nodes = [node("Gemm", "x w", "scores"), node("Tanh", "scores", "y")]
    model = model_of(nodes, {"w": normal(4, OLD)}, image=(4,), output=(OLD,))
    with pytest.raises(ModelError, match="no dense layer"):
        replace_head(model, NEW, seed=0)
    assert run(replace_head(model, NEW, seed=0, head="scores")).shape == (2, NEW)


def test_a_named_head_whose_followers_need_the_old_size_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot have 3 classes"):
        replace_head(TRANSPOSED, NEW, seed=0, head="hidden")


def test_a_name_that_is_no_layer_is_answered_with_those_that_are() -> None:
    with pytest.raises(ModelError, match="no layer `nothing`") as caught:
        replace_head(TRANSPOSED, NEW, seed=0, head="nothing")
    assert "node.product" in caught.value.fix


def test_features_that_are_no_class_scores_are_not_taken_for_a_head() -> None:
    model = convolutional(node("Flatten", "scores", "y"), output=(OLD * 16,))
    with pytest.raises(ModelError, match="cannot have 3 classes"):
        replace_head(model, NEW, seed=0)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "features"
    with pytest.raises(ModelError, match="does not decide the number of classes"):
        replace_head(model, NEW, seed=0)


def test_a_grouped_convolution_is_refused() -> None:
    model = model_of(
        [node("Conv", "x w", "scores", group=2), node("GlobalAveragePool", "scores", "y")],
        {"w": normal(4, 1, 1, 1)},
        image=(2, 3, 3),
        output=(4, 1, 1),
    )
    with pytest.raises(ModelError, match="cannot be replaced"):
        replace_head(model, NEW, seed=0)
