"""Ten steps of compiled programs against PyTorch in float64, on small models with the structure of real ones."""

from __future__ import annotations

import pytest

from benchmarks.models import small_networks as models
from benchmarks.models.small_cases import CASES
from benchmarks.references.kinks import KinkWatch, assert_agrees_up_to_kinks
from benchmarks.references.torch_reference import train_in_torch
from benchmarks.references.trained import Trained, make_batches
from benchmarks.references.workshop import Workshop
from edgetrain.graph.options import TrainOptions

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("needs_torch")]

SEEDS = range(5, 9)


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
