"""Claims about the weights in an ONNX file."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edgetrain.model.stored_weights import stored_weights


def test_weights_are_found_as_initializers_and_as_constants_and_shapes_are_none() -> None:
    weight, bias = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(1, np.float16)
    constant = numpy_helper.from_array(np.array([2.0, 3.0], np.float32))
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["scale"], value=constant),
            helper.make_node("Constant", [], ["epsilon"], value=numpy_helper.from_array(np.float32(1e-5))),
            helper.make_node("Constant", [], ["axes"], value_ints=[1, 2]),
            helper.make_node("MatMul", ["x", "fc.weight"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [
            numpy_helper.from_array(weight, "fc.weight"),
            numpy_helper.from_array(bias, "fc.bias"),
            numpy_helper.from_array(np.array([1, 2]), "shape"),
            helper.make_tensor("half", TensorProto.BFLOAT16, [2], [1.0, 0.5]),
        ],
    )
    found = stored_weights(helper.make_model(graph))
    assert set(found) == {"scale", "fc.weight", "fc.bias", "half"}
    np.testing.assert_array_equal(found["fc.weight"], weight)
    assert found["fc.bias"].dtype == np.float16
