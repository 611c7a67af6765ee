"""The weights that an ONNX file holds, by their names there."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from edgetrain.model.model import Array

_KINDS = "fV"  # NumPy's floats, and bfloat16, which is none of its own


def stored_weights(model: Any) -> dict[str, Array]:
    """Every floating-point initializer, and every constant of more than one element, which exporters write too."""
    found = {t.name: np.asarray(numpy_helper.to_array(t)) for t in model.graph.initializer}
    for node in model.graph.node:
        value = next((a for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            constant = np.asarray(numpy_helper.to_array(helper.get_attribute_value(value)))
            if constant.size > 1:
                found[node.output[0]] = constant
    return {name: array for name, array in found.items() if array.dtype.kind in _KINDS}
