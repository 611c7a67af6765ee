"""The trained model as ONNX: the same graph, new weights; adapters merged into the weights they stand beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from edgetrain.errors import InternalError
from edgetrain.graph.adapters import Beside, merge_adapters
from edgetrain.run.durable import replaced_file
from edgetrain.run.engine import Array


def write_trained_onnx(
    model: Path, parameters: Mapping[str, Array], out: Path, *, adapters: Iterable[Beside] = ()
) -> None:
    """Writes `model` with the values of `parameters` in place of its initializers of the same names.

    What `adapters` hold is merged first, so that the file needs nothing of them to run.
    Raises `DeviceError` when the disk refuses; an older file at `out` then stays as it was.
    """
    import onnx  # here: the training loop itself runs without it
    from onnx import numpy_helper

    proto = onnx.load(str(model))
    values = merge_adapters(parameters, adapters)
    left = set(values)
    for tensor in proto.graph.initializer:
        if tensor.name in left:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))
            left.remove(tensor.name)
    for node in proto.graph.node:  # exporters also keep weights in Constant nodes
        if node.op_type == "Constant" and node.output[0] in left:
            name = node.output[0]
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(values[name], name)))
            left.remove(name)
    if left:
        raise InternalError(f"the model has no initializers named {sorted(left)[:3]} to write back")
    with replaced_file(out) as file:
        file.write(proto.SerializeToString(deterministic=True))
