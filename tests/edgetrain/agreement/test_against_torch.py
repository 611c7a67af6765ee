"""Ten steps of compiled programs against PyTorch in float64, on small models with the structure of real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from edgetrain.graph.options import OptimizerOptions, TrainOptions
from tests.edgetrain.agreement import onnx_models as models
from tests.edgetrain.agreement.kinks import KinkWatch, assert_agrees_up_to_kinks
from tests.edgetrain.agreement.torch_reference import train_in_torch
from tests.edgetrain.agreement.trained import Trained, make_batches
from tests.edgetrain.agreement.workshop import Workshop

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("needs_torch")]

SGD = OptimizerOptions(kind="sgd", momentum=0.9, weight_decay=1e-4)
SEEDS = range(5, 9)
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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_the_model_trains_as_in_torch(name: str, seed: int, workshop: Workshop) -> None:
    case = CASES[name]
    options = TrainOptions(
        batch=case.batch,
        loss=case.loss,
        optimizer=case.optimizer,
        batchnorm=case.batchnorm,
        clip_norm=case.clip_norm,
    )
    model = case.model()
    compiled = workshop.compile(model, options)

    batches = make_batches(case.image, models.CLASSES, loss=case.loss, size=case.batch, seed=seed)
    found = workshop.train(compiled, batches, options, learning_rate=case.learning_rate)

    def reference(watch: KinkWatch) -> Trained:
        return train_in_torch(model, batches, options, learning_rate=case.learning_rate, watch=watch)

    assert_agrees_up_to_kinks(found, reference)
