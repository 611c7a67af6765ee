"""If, Loop and Scan: gone after the import, with the numbers of onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.importing.onnx_models import FLOAT, model_of
from edgetrain.errors import UnsupportedError
from edgetrain.model.control_flow import MAXIMUM_UNROLLED_STEPS
from edgetrain.model.importer import import_model
from tests.edgetrain.model.running import expected, run

node = helper.make_node
X = np.array([[1.0, -2.0, 3.0], [-1.0, 0.5, 0.25]], np.float32)


def _float(name: str) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, None)


def _branch_model(condition: list[Any], stored: dict[str, Any]) -> onnx.ModelProto:
    """y = relu(x) · w where `chosen`, else −x."""
    then = helper.make_graph(
        [node("Relu", ["x"], ["r"]), node("Mul", ["r", "w"], ["t"])],
        "then",
        [],
        [_float("t")],
        [helper.make_tensor("w", FLOAT, [3], [1.0, 2.0, 3.0])],
    )
    other = helper.make_graph([node("Neg", ["x"], ["e"])], "else", [], [_float("e")])
    return model_of(
        [*condition, node("If", ["chosen"], ["y"], name="choice", then_branch=then, else_branch=other)],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored=stored,
    )


@pytest.mark.compile
@pytest.mark.parametrize("choice", [True, False])
def test_a_branch_on_a_constant_leaves_only_that_branch(choice: bool) -> None:
    proto = _branch_model([], {"chosen": np.array(choice)})
    model = import_model(proto, name="branch", batch=2)
    assert list(model.parameters) == (["w"] if choice else [])
    np.testing.assert_allclose(run(model, {"x": X})[0], expected(proto, {"x": X})[0])


@pytest.mark.compile
@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_a_branch_on_data_computes_both_and_selects(limit: float) -> None:
    condition = [node("ReduceMax", ["x"], ["top"], keepdims=0), node("Greater", ["top", "limit"], ["chosen"])]
    proto = _branch_model(condition, {"limit": np.array(limit, np.float32)})
    model = import_model(proto, name="branch", batch=2)
    np.testing.assert_allclose(run(model, {"x": X})[0], expected(proto, {"x": X})[0])


@pytest.mark.compile
def test_a_branch_on_each_row_of_a_rebound_batch_selects_row_by_row() -> None:
    """Exported for one row, the condition is that row's; with a batch of two, each row has its own."""
    condition = [node("ReduceMax", ["x"], ["top"], axes=[1], keepdims=1), node("Greater", ["top", "two"], ["chosen"])]
    proto = _branch_model(condition, {"two": np.array(2.0, np.float32)})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    model = import_model(proto, name="branch", batch=2)
    rows = [expected(proto, {"x": X[i : i + 1]})[0] for i in range(2)]
    np.testing.assert_allclose(run(model, {"x": X})[0], np.concatenate(rows))


def _loop_model(count: int, *, condition: str = "keep") -> onnx.ModelProto:
    """a ← tanh(a · w) `count` times; gives the last a and all of them."""
    body = helper.make_graph(
        [
            node("Identity", [condition], ["goes_on"]),
            node("Mul", ["a", "w"], ["product"]),
            node("Tanh", ["product"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("keep", TensorProto.BOOL, []),
            _float("a"),
        ],
        [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []), _float("next"), _float("next")],
    )
    return model_of(
        [node("Loop", ["count", "", "x"], ["last", "all"], name="repeat", body=body)],
        inputs={"x": ["n", 3]},
        outputs=["last", "all"],
        stored={"count": np.array(count, np.int64), "w": np.array([0.5, 2.0, 1.0], np.float32)},
    )


@pytest.mark.compile
@pytest.mark.parametrize("count", [1, 4])
def test_a_loop_is_unrolled_and_its_steps_share_their_weights(count: int) -> None:
    proto = _loop_model(count)
    model = import_model(proto, name="loop", batch=2)
    assert list(model.parameters) == ["w"]
    for ours, theirs in zip(run(model, {"x": X}), expected(proto, {"x": X}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_loop_that_is_too_long_is_refused_with_both_numbers() -> None:
    with pytest.raises(UnsupportedError, match=rf"Loop `repeat`: it runs more than {MAXIMUM_UNROLLED_STEPS} times"):
        import_model(_loop_model(MAXIMUM_UNROLLED_STEPS + 1), name="loop", batch=2)


def test_a_loop_that_data_ends_is_refused() -> None:
    proto = _loop_model(4)
    body = proto.graph.node[0].attribute[0].g
    body.node[0].CopyFrom(node("Greater", ["total", "zero"], ["goes_on"]))
    body.node.insert(0, node("ReduceSum", ["a"], ["total"], keepdims=0))
    body.initializer.append(helper.make_tensor("zero", FLOAT, [], [0.0]))
    with pytest.raises(UnsupportedError, match="Loop `repeat`: control flow that depends on data"):
        import_model(proto, name="loop", batch=2)


def _scan_model(steps: int | None = None, **attributes: Any) -> onnx.ModelProto:
    """total ← tanh(total · w + x[t]); gives the last total, and before it is bent at each t."""
    body = helper.make_graph(
        [
            node("Mul", ["total", "w"], ["product"]),
            node("Add", ["product", "part"], ["raw"]),
            node("Tanh", ["raw"], ["next"]),
        ],
        "body",
        [_float("total"), _float("part")],
        [_float("next"), _float("raw")],
    )
    return model_of(
        [node("Scan", ["start", "x"], ["last", "all"], name="walk", body=body, num_scan_inputs=1, **attributes)],
        inputs={"start": ["n", 3], "x": [steps or 2, 2, 3]},
        outputs=["last", "all"],
        stored={"w": np.array([0.5, 2.0, 1.0], np.float32)},
    )


@pytest.mark.compile
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_directions": [1]},
        {"scan_output_directions": [1]},
        {"scan_output_axes": [1]},
        {"scan_output_axes": [-1], "scan_input_directions": [1], "scan_output_directions": [1]},
        {"scan_input_axes": [1]},
        {"scan_input_axes": [-2]},
    ],
    ids=str,
)
def test_a_scan_is_unrolled_along_its_axis_in_its_direction(attributes: dict[str, Any]) -> None:
    proto = _scan_model(**attributes)
    model = import_model(proto, name="scan", batch=2)
    assert list(model.parameters) == ["w"]
    x = np.random.default_rng(0).standard_normal((2, 2, 3)).astype(np.float32)
    feeds = {"start": X, "x": x}
    for ours, theirs in zip(run(model, feeds), expected(proto, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_scan_that_is_too_long_is_refused_with_both_numbers() -> None:
    steps = MAXIMUM_UNROLLED_STEPS + 1
    with pytest.raises(UnsupportedError, match=f"it runs {steps} times; at most {MAXIMUM_UNROLLED_STEPS} are unrolled"):
        import_model(_scan_model(steps), name="scan", batch=2)


def test_a_scan_with_too_few_directions_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="`scan_output_directions` has 2 values for 1 tensors"):
        import_model(_scan_model(scan_output_directions=[0, 1]), name="scan", batch=2)


def test_an_op_in_a_body_that_cannot_be_imported_is_named_once() -> None:
    proto = _loop_model(4)
    proto.graph.node[0].attribute[0].g.node[2].op_type = "NoSuchOp"
    with pytest.raises(UnsupportedError) as caught:
        import_model(proto, name="loop", batch=2)
    assert caught.value.what.count("NoSuchOp `next`") == 1
