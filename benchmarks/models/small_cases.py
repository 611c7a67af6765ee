"""Small models with the structure of real ones, each with the training that its agreement with PyTorch is judged on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.models import small_networks as models
from edgetrain.graph.options import OptimizerOptions

SGD = OptimizerOptions(kind="sgd", momentum=0.9, weight_decay=1e-4)
ADAMW = OptimizerOptions(kind="adamw", weight_decay=0.01)


@dataclass(frozen=True, kw_only=True)
class Case:
    model: Callable[[], Any]
    image: tuple[int, ...]
    optimizer: OptimizerOptions = SGD
    learning_rate: float = 0.02
    batch: int = 4
    batchnorm: str = "train"
    loss: str = "cross-entropy"
    clip_norm: float = 0.0


CASES = {
    "batch-norm-train": Case(model=models.batch_norm_cnn, image=models.BATCH_NORM_IMAGE),
    "batch-norm-frozen": Case(model=models.batch_norm_cnn, image=models.BATCH_NORM_IMAGE, batchnorm="frozen"),
    "resnet18": Case(model=models.resnet18, image=models.RESNET_IMAGE, learning_rate=0.005),
    "mobilenet": Case(model=models.mobilenet, image=models.MOBILENET_IMAGE),
    "transformer": Case(
        model=models.transformer, image=models.TRANSFORMER_IMAGE, optimizer=ADAMW, learning_rate=0.003, clip_norm=1.0
    ),
    "gated": Case(model=models.gated, image=(models.MLP_INPUTS,), loss="bce"),
}
