"""Claims about folding BatchNorm into the layer before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models import small_networks as models
from edgetrain.model.fold_batchnorm import fold_batchnorm
from edgetrain.model.zoo import build_zoo_model

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def norm_of(channels: int) -> dict[str, Any]:
    variance = RNG.uniform(0.2, 3.0, channels).astype(np.float32)
    return {"scale": normal(channels), "shift": normal(channels), "mean": normal(channels), "variance": variance}


def layer_and_norm(
    op: str,
    weight: Any,
    *,
    bias: Any = None,
    image: tuple[int, ...],
    channels: int = 4,
    extra: tuple[Any, ...] = (),
    **attributes: object,
) -> onnx.ModelProto:
    """x → layer → BatchNorm → y; `extra` nodes come after."""
    inputs = ["x", "weight"] + (["bias"] if bias is not None else [])
    nodes = [
        helper.make_node(op, inputs, ["layer"], name="first", **attributes),
        helper.make_node("BatchNormalization", ["layer", *norm_of(1)], ["y"], epsilon=1e-3),
        *extra,
    ]
    values = {"weight": weight, **norm_of(channels), **({"bias": bias} if bias is not None else {})}
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *image])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, ["batch", *"cde"[: len(image)]])],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def run(model: onnx.ModelProto, seed: int = 1) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    value = model.graph.input[0]
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim][1:]
    (y,) = session.run(None, {value.name: np.random.default_rng(seed).standard_normal((2, *shape)).astype(np.float32)})
    return y


def count(model: onnx.ModelProto) -> int:
    return sum(n.op_type == "BatchNormalization" for n in model.graph.node)


CASES = {
    "conv": layer_and_norm("Conv", normal(4, 3, 3, 3), image=(3, 6, 6)),
    "conv-bias": layer_and_norm("Conv", normal(4, 3, 3, 3), bias=normal(4), image=(3, 6, 6), strides=[2, 2]),
    "conv-groups": layer_and_norm("Conv", normal(6, 1, 3, 3), image=(3, 6, 6), channels=6, group=3),
    "conv1d": layer_and_norm("Conv", normal(4, 3, 3), image=(3, 6)),
    "transpose": layer_and_norm("ConvTranspose", normal(3, 4, 2, 2), image=(3, 4, 4), strides=[2, 2]),
    "transpose-groups": layer_and_norm(
        "ConvTranspose", normal(4, 3, 2, 2), bias=normal(6), image=(4, 3, 3), channels=6, group=2
    ),
    "gemm": layer_and_norm("Gemm", normal(5, 4), bias=normal(4), image=(5,)),
    "gemm-transposed": layer_and_norm("Gemm", normal(4, 5), image=(5,), transB=1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_folded_model_puts_out_the_same(name: str) -> None:
    folded = fold_batchnorm(CASES[name])
    assert (count(CASES[name]), count(folded.model)) == (1, 0)
    onnx.checker.check_model(folded.model)
    np.testing.assert_allclose(run(folded.model), run(CASES[name]), rtol=1e-4, atol=1e-5)
    assert len(folded.rewrites) == 1
    assert folded.rewrites[0].endswith("folded")


@pytest.mark.parametrize("model", [models.resnet18(), models.mobilenet(), build_zoo_model("digits-cnn-bn")])
def test_real_structures_fold_whole(model: onnx.ModelProto) -> None:
    folded = fold_batchnorm(model).model
    assert count(model) > 0
    assert count(folded) == 0
    np.testing.assert_allclose(run(folded), run(model), rtol=1e-3, atol=1e-4)
    used = {name for node in folded.graph.node for name in node.input}
    assert {t.name for t in folded.graph.initializer} <= used, "statistics of folded norms are gone"


def test_the_given_model_stays_as_it_was() -> None:
    model = CASES["conv"]
    before = model.SerializeToString()
    fold_batchnorm(model)
    assert model.SerializeToString() == before


def test_a_layer_whose_result_is_used_elsewhere_keeps_its_norm() -> None:
    extra = (helper.make_node("Add", ["y", "layer"], ["sum"]),)
    model = layer_and_norm("Conv", normal(4, 3, 3, 3), image=(3, 6, 6), extra=extra)
    folded = fold_batchnorm(model)
    assert count(folded.model) == 1
    assert "used elsewhere" in folded.rewrites[0]
    np.testing.assert_array_equal(run(folded.model), run(model))


def test_a_shared_weight_is_copied_for_the_folded_layer() -> None:
    extra = (
        helper.make_node("Conv", ["x", "weight"], ["second"]),
        helper.make_node("Concat", ["y", "second"], ["both"], axis=1),
    )
    model = layer_and_norm("Conv", normal(4, 3, 3, 3), image=(3, 6, 6), extra=extra)
    folded = fold_batchnorm(model).model
    assert count(folded) == 0
    np.testing.assert_allclose(run(folded), run(model), rtol=1e-4, atol=1e-5)


def test_a_norm_without_a_layer_before_it_stays() -> None:
    writer_model = models.batch_norm_cnn()
    first = next(n for n in writer_model.graph.node if n.op_type == "BatchNormalization")
    relu = helper.make_node("Relu", [first.input[0]], ["before_norm"])
    first.input[0] = "before_norm"
    nodes = list(writer_model.graph.node)
    nodes.insert(nodes.index(first), relu)
    del writer_model.graph.node[:]
    writer_model.graph.node.extend(nodes)
    folded = fold_batchnorm(writer_model)
    assert count(folded.model) == 1
    assert "follows Relu" in folded.rewrites[0]
    np.testing.assert_allclose(run(folded.model), run(writer_model), rtol=1e-4, atol=1e-5)
