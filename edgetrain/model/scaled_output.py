"""An output of an ONNX graph times a number plus a number, in place, under its own name."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper


def append_scaling(proto: Any, output: str, *, mean: float, std: float) -> None:
    """Makes the graph put out `output * std + mean`. Whatever in the graph read the output reads it as it was."""
    graph = proto.graph
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {t.name for t in graph.initializer}

    def unused(name: str) -> str:
        while name in taken:
            name += "_"
        return name

    unscaled, stretched = unused(f"{output}_unscaled"), unused(f"{output}_stretched")
    std_name, mean_name = unused(f"{output}_std"), unused(f"{output}_mean")
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [unscaled if name == output else name for name in names]
    value = next(value for value in graph.output if value.name == output)
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    for name, number in ((std_name, std), (mean_name, mean)):
        graph.initializer.append(numpy_helper.from_array(np.asarray(number, dtype), name))
    graph.node.append(helper.make_node("Mul", [unscaled, std_name], [stretched]))
    graph.node.append(helper.make_node("Add", [stretched, mean_name], [output]))
