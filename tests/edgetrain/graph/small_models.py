"""Imported models small enough to check a whole training step by hand or by finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from benchmarks.importing.onnx_models import mlp, model_of
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model
from edgetrain.model.zoo import small_cnn

BATCH = 2


def mlp_model(batch: int = BATCH, **settings: Any) -> Model:
    """`fc0` → ReLU → `fc1` → `logits` (batch, 3), from `x` (batch, 4)."""
    return import_model(mlp(**settings), name="mlp", batch=batch)


def cnn_model(batch: int = BATCH, *, batch_norm: bool = True) -> Model:
    """Two 3 × 3 convolutions with BatchNorm or biases, a pool and the dense layer `head`, on 6 × 6 images."""
    proto = small_cnn("cnn", image=(1, 6, 6), channels=(2, 3), pool_after=(1,), batch_norm=batch_norm, classes=3)
    return import_model(proto, name="cnn", batch=batch)


def tied_model(batch: int = BATCH) -> Model:
    """x · W · Wᵀ · W: one parameter read three times."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Transpose", ["w"], ["wt"], name="turned", perm=[1, 0]),
        helper.make_node("MatMul", ["a", "wt"], ["b"], name="second"),
        helper.make_node("MatMul", ["b", "w"], ["logits"], name="third"),
    ]
    weight = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
    proto = model_of(nodes, inputs={"x": ["batch", 4]}, outputs=["logits"], stored={"w": weight})
    return import_model(proto, name="tied", batch=batch)
