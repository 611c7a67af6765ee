"""Ten steps of a compiled program against float64 NumPy: every loss and optimizer, and max pools with ties."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.models.small_networks import CLASSES, MLP_INPUTS, TIE_IMAGE, initial_parameters, mlp, tie_cnn
from benchmarks.references.trained import assert_agrees, joined, make_batches
from benchmarks.references.workshop import Workshop
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from tests.edgetrain.agreement import numpy_reference as reference

pytestmark = pytest.mark.compile

BATCH = 7
MLP_LAYERS = (
    reference.dense("first"),
    reference.relu,
    reference.dense("second"),
    reference.relu,
    reference.dense("head"),
)
TIE_LAYERS = (
    reference.convolution("conv", pad=1),
    reference.add("position"),
    reference.max_pool(size=2, pad=1),
    reference.relu,
    reference.flatten,
    reference.dense("head"),
)

OPTIMIZERS = {
    "sgd": (OptimizerOptions(kind="sgd"), 0.1),
    "momentum": (OptimizerOptions(kind="sgd", momentum=0.9), 0.05),
    "weight-decay": (OptimizerOptions(kind="sgd", momentum=0.5, weight_decay=0.1), 0.05),
    "adam": (OptimizerOptions(kind="adam", weight_decay=0.1, beta1=0.8, beta2=0.95), 0.01),
    "adamw": (OptimizerOptions(kind="adamw", weight_decay=0.1), 0.01),
}
# Every loss with plain steps, and every optimizer with one loss: they meet only in the gradient.
CASES = [(loss, "sgd") for loss in reference.LOSSES] + [("cross-entropy", o) for o in OPTIMIZERS if o != "sgd"]


@pytest.mark.parametrize(("loss", "optimizer"), CASES)
def test_an_mlp_trains_as_in_numpy(loss: str, optimizer: str, workshop: Workshop) -> None:
    settings, rate = OPTIMIZERS[optimizer]
    options = TrainOptions(batch=BATCH, loss=loss, optimizer=settings)
    model, batches = mlp(), make_batches((MLP_INPUTS,), CLASSES, loss=loss, size=BATCH, seed=1)
    found = workshop.train_model(model, batches, options, learning_rate=rate)
    expected = reference.train_in_numpy(MLP_LAYERS, initial_parameters(model), batches, options, learning_rate=rate)
    assert_agrees(found, expected)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_cnn_whose_maxima_tie_trains_as_in_numpy(seed: int, workshop: Workshop) -> None:
    options = TrainOptions(batch=4)
    model = tie_cnn()
    batches = make_batches(TIE_IMAGE, CLASSES, loss=options.loss, size=4, seed=seed, patch=4)
    found = workshop.train_model(model, batches, options, learning_rate=0.05)
    expected = reference.train_in_numpy(TIE_LAYERS, initial_parameters(model), batches, options, learning_rate=0.05)
    assert_agrees(found, expected)


def test_the_tied_images_do_tie() -> None:
    (batch,) = make_batches(TIE_IMAGE, CLASSES, loss="cross-entropy", size=4, seed=1, count=1, patch=4)
    parameters = {n: a.astype(np.float64) for n, a in initial_parameters(tie_cnn()).items()}
    mapped, _ = reference.convolution("conv", pad=1)(batch.data.astype(np.float64), parameters)
    window = mapped[:, :, 1:3, 1:3]  # the second pool window in both directions, for the pool pads by one
    assert (window == window[:, :, :1, :1]).all()


def test_clipped_gradients_train_as_in_numpy(workshop: Workshop) -> None:
    options = TrainOptions(batch=BATCH, loss="mse", clip_norm=0.3)
    model, batches = mlp(), make_batches((MLP_INPUTS,), CLASSES, loss="mse", size=BATCH, seed=2)
    norms = []
    for batch in batches:
        parameters = {n: a.astype(np.float64) for n, a in initial_parameters(model).items()}
        _, gradients = reference.gradients_of(MLP_LAYERS, parameters, batch, "mse")
        norms.append(np.sqrt(sum((g**2).sum() for g in gradients.values())))
    assert max(norms) > options.clip_norm, "no gradient is clipped: choose a lower limit"
    found = workshop.train_model(model, batches, options, learning_rate=0.1)
    expected = reference.train_in_numpy(MLP_LAYERS, initial_parameters(model), batches, options, learning_rate=0.1)
    assert_agrees(found, expected)


@pytest.mark.parametrize("clip_norm", [0.0, 0.3])
def test_two_accumulated_batches_train_as_one_of_twice_the_size(clip_norm: float, workshop: Workshop) -> None:
    optimizer = OptimizerOptions(kind="adam")
    options = TrainOptions(batch=BATCH, loss="mse", optimizer=optimizer, clip_norm=clip_norm, accumulate=2)
    model, batches = mlp(), make_batches((MLP_INPUTS,), CLASSES, loss="mse", size=BATCH, seed=3, count=20)
    found = workshop.train_model(model, batches, options, learning_rate=0.01)
    expected = reference.train_in_numpy(
        MLP_LAYERS, initial_parameters(model), joined(batches, 2), options, learning_rate=0.01
    )
    assert_agrees(found, expected)
