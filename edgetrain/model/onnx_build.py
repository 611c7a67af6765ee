"""Writes ONNX graphs node by node: what the model zoo is built with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        """A stored value that several nodes may share: the second time a name is given, the first value stands."""
        if all(tensor.name != name for tensor in self._initializers):
            self.weight(name, value)
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
        kernel = list(weight.shape[2:])
        return self.node(
            "Conv",
            inputs,
            name,
            kernel_shape=kernel,
            strides=[stride] * len(kernel),
            pads=list(pads),
            dilations=[1] * len(kernel),
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
            bounds.append(self.constant(f"clip.{bound:g}", np.array(bound, np.float32)))
        return self.node("Clip", [x, *bounds], name)

    def dense(self, x: str, weight: FloatArray, bias: FloatArray, output: str, *, layer: str) -> str:
        """`weight` is (outputs, inputs), as trained models store it. `layer` names the parameters."""
        inputs = [x, self.weight(f"{layer}.weight", weight), self.weight(f"{layer}.bias", bias)]
        return self.node("Gemm", inputs, output, transB=1)

    def finish(self, name: str, *, image: Sequence[int], classes: int) -> onnx.ModelProto:
        """The model from `image` (batch, *image) to the value `logits` (batch, classes), checked."""
        return self.finish_with(name, inputs={"image": (TensorProto.FLOAT, image)}, classes=classes)

    def finish_with(
        self, name: str, *, inputs: Mapping[str, tuple[int, Sequence[int | str]]], classes: int
    ) -> onnx.ModelProto:
        """The model from several inputs, each an ONNX element type and a shape without the batch, to `logits`."""
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(n, kind, ["batch", *shape]) for n, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
            self._initializers,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="edgetrain", ir_version=IR_VERSION
        )
        onnx.checker.check_model(model, full_check=True)
        return model
