"""The trained model as ONNX: the same graph, new weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgetrain.errors import InternalError
from edgetrain.run.durable import replaced_file
from edgetrain.run.engine import Array


def write_trained_onnx(model: Path, parameters: Mapping[str, Array], out: Path) -> None:
    """Writes `model` with the values of `parameters` in place of its initializers of the same names.

    Raises `DeviceError` when the disk refuses; an older file at `out` then stays as it was.
    """
    import onnx  # here: the training loop itself runs without it
    from onnx import numpy_helper

    proto = onnx.load(str(model))
    left = set(parameters)
    for tensor in proto.graph.initializer:
        if tensor.name in left:
            tensor.CopyFrom(numpy_helper.from_array(parameters[tensor.name], tensor.name))
            left.remove(tensor.name)
    for node in proto.graph.node:  # exporters also keep weights in Constant nodes
        if node.op_type == "Constant" and node.output[0] in left:
            name = node.output[0]
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(parameters[name], name)))
            left.remove(name)
    if left:
        raise InternalError(f"the model has no initializers named {sorted(left)[:3]} to write back")
    with replaced_file(out) as file:
        file.write(proto.SerializeToString(deterministic=True))
