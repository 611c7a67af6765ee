"""Writes ONNX graphs node by node: what the model zoo is built with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8  # the one that goes with opset 17, so that older readers accept the file

FloatArray = np.ndarray[Any, np.dtype[np.float32]]


class GraphWriter:
    """Collects nodes and initializers; `finish` gives a checked model. Values are named after their node."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []

    def weight(self, name: str, value: np.ndarray[Any, Any]) -> str:
        self._initializers.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        """Adds a node with one output, and returns the output's name."""
        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def convolution(
        self,
        x: str,
        weight: FloatArray,
        name: str,
        *,
        bias: FloatArray | None = None,
        stride: int = 1,
        pads: Sequence[int],
        group: int = 1,
    ) -> str:
        inputs = [x, self.weight(f"{name}.weight", weight)]
        if bias is not None:
            inputs.append(self.weight(f"{name}.bias", bias))
        height, width = weight.shape[2:]
        return self.node(
            "Conv",
            inputs,
            name,
            kernel_shape=[height, width],
            strides=[stride, stride],
            pads=list(pads),
            dilations=[1, 1],
            group=group,
        )

    def batch_norm(
        self,
        x: str,
        name: str,
        *,
        scale: FloatArray,
        bias: FloatArray,
        mean: FloatArray,
        variance: FloatArray,
        epsilon: float,
        momentum: float,
    ) -> str:
        values = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
        inputs = [x, *(self.weight(f"{name}.{key}", value) for key, value in values.items())]
        return self.node("BatchNormalization", inputs, name, epsilon=epsilon, momentum=momentum)

    def clip(self, x: str, name: str, *, low: float, high: float) -> str:
        bounds = []
        for bound in (low, high):
            key = f"clip.{bound:g}"
            if all(tensor.name != key for tensor in self._initializers):
                self.weight(key, np.array(bound, np.float32))
            bounds.append(key)
        return self.node("Clip", [x, *bounds], name)

    def dense(self, x: str, weight: FloatArray, bias: FloatArray, output: str, *, layer: str) -> str:
        """`weight` is (outputs, inputs), as trained models store it. `layer` names the parameters."""
        inputs = [x, self.weight(f"{layer}.weight", weight), self.weight(f"{layer}.bias", bias)]
        return self.node("Gemm", inputs, output, transB=1)

    def finish(self, name: str, *, image: Sequence[int], classes: int) -> onnx.ModelProto:
        """The model from `image` (batch, *image) to the value `logits` (batch, classes), checked."""
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *image])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
            self._initializers,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="edgetrain", ir_version=IR_VERSION
        )
        onnx.checker.check_model(model, full_check=True)
        return model
