"""A network of dense layers for rows of numbers: what a table is learned with where nobody brings a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto

from edgetrain.model.onnx_build import GraphWriter


def multilayer_perceptron(features: int, hidden: Sequence[int], outputs: int, *, seed: int) -> onnx.ModelProto:
    """Dense layers with ReLU between them, from `features` (batch, features) to `logits` (batch, outputs).

    Weights are drawn as He et al. (2015) advise, from the seed alone.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    graph, value = GraphWriter(), "features"
    widths = (features, *hidden, outputs)
    for number, (inputs, width) in enumerate(pairwise(widths)):
        is_last = number == len(widths) - 2
        weight = rng.standard_normal((width, inputs)).astype(np.float32) * np.float32(np.sqrt(2 / max(1, inputs)))
        name = "logits" if is_last else f"dense{number}"
        value = graph.dense(value, weight, np.zeros(width, np.float32), name, layer=f"layer{number}")
        if not is_last:
            value = graph.node("Relu", [value], f"active{number}")
    return graph.finish_with("perceptron", inputs={"features": (TensorProto.FLOAT, [features])}, classes=outputs)
