from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from benchmarks.importing.onnx_models import FLOAT, mlp, model_of
from edgetrain.errors import UnsupportedError
from edgetrain.model.outline import Outline, serialised
from edgetrain.model.write_back import write_weights
from tests.edgetrain.model.running import expected

node = helper.make_node
X = np.array([[1.0, 2.0, 3.0]], np.float32)
WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)


def _product(weight: list[Any], stored: dict[str, Any]) -> onnx.ModelProto:
    return model_of([*weight, node("MatMul", ["x", "w"], ["y"])], inputs={"x": ["n", 3]}, outputs=["y"], stored=stored)


def written(proto: onnx.ModelProto, **values: np.ndarray[Any, Any]) -> onnx.ModelProto:
    outline = Outline(proto=onnx.ModelProto.FromString(proto.SerializeToString()), contents={})
    write_weights(outline, {name: functools.partial(np.asarray, value) for name, value in values.items()})
    return onnx.ModelProto.FromString(b"".join(serialised(outline)))


_PLACES = {
    "initializer": _product([], {"w": np.zeros((3, 2), np.float32)}),
    "constant": _product(
        [node("Constant", [], ["w"], value=numpy_helper.from_array(np.zeros((3, 2), np.float32)))], {}
    ),
    "dequantised": _product(
        [node("DequantizeLinear", ["q", "scale"], ["w"])],
        {"q": np.ones((3, 2), np.int8), "scale": np.array(0.5, np.float32)},
    ),
}


@pytest.mark.parametrize("place", _PLACES)
def test_a_file_computes_with_the_weight_that_was_written(place: str) -> None:
    proto = written(_PLACES[place], w=WEIGHT)
    np.testing.assert_allclose(expected(proto, {"x": X})[0], X @ WEIGHT)


def test_a_weight_inside_a_branch_is_found() -> None:
    then = helper.make_graph(
        [node("MatMul", ["x", "w"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", FLOAT, None)],
        [numpy_helper.from_array(np.zeros((3, 2), np.float32), "w")],
    )
    other = helper.make_graph(
        [node("Identity", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, None)]
    )
    proto = model_of(
        [node("If", ["chosen"], ["y"], then_branch=then, else_branch=other)],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored={"chosen": np.array(True)},
    )
    proto = written(proto, w=WEIGHT)
    np.testing.assert_allclose(expected(proto, {"x": X})[0], X @ WEIGHT)


def test_a_half_precision_weight_stays_one() -> None:
    proto = written(_product([], {"w": np.zeros((3, 2), np.float16)}), w=WEIGHT)
    stored = numpy_helper.to_array(proto.graph.initializer[0])
    assert stored.dtype == np.float16
    np.testing.assert_array_equal(stored, WEIGHT)


@pytest.mark.parametrize("name", ["w", "absent"])
def test_a_weight_without_a_place_is_refused_and_nothing_is_changed(name: str) -> None:
    """`w` holds the integers of an integer op; `absent` is not in the file."""
    proto = model_of(
        [node("MatMulInteger", ["x", "w"], ["y"]), node("Relu", ["v"], ["z"])],
        inputs={"x": ["n", 3]},
        outputs=["y", "z"],
        stored={"w": np.ones((3, 2), np.int8), "v": np.zeros(2, np.float32)},
    )
    before = proto.SerializeToString()
    with pytest.raises(UnsupportedError, match=f"1 trained weights have no place in the file: {name}"):
        write_weights(Outline(proto=proto, contents={}), {name: lambda: WEIGHT, "v": lambda: np.ones(2, np.float32)})
    assert proto.SerializeToString() == before


def test_other_weights_are_left_alone() -> None:
    original = mlp()
    proto = written(original, **{"fc1.bias": np.full(3, 7.0, np.float32)})
    kept = {t.name: numpy_helper.to_array(t) for t in original.graph.initializer if t.name != "fc1.bias"}
    for tensor in proto.graph.initializer:
        if tensor.name in kept:
            np.testing.assert_array_equal(numpy_helper.to_array(tensor), kept[tensor.name])
