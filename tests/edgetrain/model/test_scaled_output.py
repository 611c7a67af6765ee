"""Claims about an output in other units."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgetrain.model.scaled_output import append_scaling


def model() -> onnx.ModelProto:
    """Two outputs, the second computed from the first; a name that scaling would like to use is taken."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "y_std"], ["y"]),
            helper.make_node("Neg", ["y"], ["negative"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1]),
            helper.make_tensor_value_info("negative", TensorProto.FLOAT, ["batch", 1]),
        ],
        [numpy_helper.from_array(np.array([[1], [2], [3]], np.float32), "y_std")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("mean", "std"), [(250_000.0, 80_000.0), (-0.5, 0.001)])
def test_an_output_is_scaled_under_its_own_name_and_others_stay(mean: float, std: float) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    plain, scaled = model(), model()
    append_scaling(scaled, "y", mean=mean, std=std)
    onnx.checker.check_model(scaled, full_check=True)
    before, after = (
        onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for m in (plain, scaled)
    )
    np.testing.assert_allclose(after[0], before[0] * std + mean, rtol=1e-6)
    np.testing.assert_array_equal(after[1], before[1])
