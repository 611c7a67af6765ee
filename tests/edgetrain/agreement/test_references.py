"""The references themselves: an oracle that is wrong, or a comparison that cannot fail, proves nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.models import small_networks as models
from benchmarks.references import torch_reference
from benchmarks.references.trained import (
    Trained,
    assert_agrees,
    make_batches,
    relative_difference,
)
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from tests.edgetrain.agreement import numpy_reference
from tests.edgetrain.agreement.test_against_numpy import MLP_LAYERS, TIE_LAYERS

BATCH = 3
IMAGES = {
    models.mlp: (models.MLP_INPUTS,),
    models.tie_cnn: models.TIE_IMAGE,
    models.batch_norm_cnn: models.BATCH_NORM_IMAGE,
    models.resnet18: models.RESNET_IMAGE,
    models.mobilenet: models.MOBILENET_IMAGE,
    models.transformer: models.TRANSFORMER_IMAGE,
    models.gated: (models.MLP_INPUTS,),
}


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize("make", IMAGES)
def test_the_torch_interpreter_puts_out_what_onnxruntime_does(make: Any) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    data = np.random.default_rng(0).standard_normal((BATCH, *IMAGES[make])).astype(np.float32)
    session = runtime.InferenceSession(make().SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"image": data})
    assert relative_difference(torch_reference.TorchModel(make()).outputs(data), expected) < 1e-5


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("loss", numpy_reference.LOSSES)
def test_numpy_and_torch_train_an_mlp_alike(loss: str, kind: str) -> None:
    momentum = 0.9 if kind == "sgd" else 0.0
    optimizer = OptimizerOptions(kind=kind, momentum=momentum, weight_decay=0.01)
    options = TrainOptions(batch=BATCH, loss=loss, optimizer=optimizer, clip_norm=0.5)
    model, batches = models.mlp(), make_batches((models.MLP_INPUTS,), models.CLASSES, loss=loss, size=BATCH, seed=1)
    in_torch = torch_reference.train_in_torch(model, batches, options, learning_rate=0.01)
    initial = models.initial_parameters(model)
    in_numpy = numpy_reference.train_in_numpy(MLP_LAYERS, initial, batches, options, learning_rate=0.01)
    assert_agrees(in_numpy, in_torch, value=1e-9, update=1e-7)


@pytest.mark.parametrize("name", ["conv.weight", "conv.bias", "position", "head.weight"])
def test_numpys_gradients_are_finite_differences(name: str) -> None:
    (batch,) = make_batches(models.TIE_IMAGE, models.CLASSES, loss="cross-entropy", size=2, seed=1, count=1)
    parameters = {n: a.astype(np.float64) for n, a in models.initial_parameters(models.tie_cnn()).items()}
    _, gradients = numpy_reference.gradients_of(TIE_LAYERS, parameters, batch, "cross-entropy")
    rng = np.random.default_rng(3)
    for index in (tuple(rng.integers(0, s) for s in parameters[name].shape) for _ in range(10)):
        ends = []
        for sign in (1.0, -1.0):
            moved = parameters[name].copy()
            moved[index] += sign * 1e-6
            values = {**parameters, name: moved}
            ends.append(numpy_reference.gradients_of(TIE_LAYERS, values, batch, "cross-entropy")[0])
        assert gradients[name][index] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


def _run() -> Trained:
    rng = np.random.default_rng(0)
    initial = {"w": rng.standard_normal(20), "b": np.zeros(4)}
    final = {"w": initial["w"] - 0.01 * rng.standard_normal(20), "b": 0.01 * rng.standard_normal(4)}
    return Trained(losses=(2.0, 1.5), initial=initial, final=final)


def test_a_run_agrees_with_itself() -> None:
    assert_agrees(_run(), _run())


def test_an_update_that_is_one_percent_off_is_reported_though_the_value_is_not() -> None:
    good = _run()
    wrong = {**good.final, "w": good.final["w"] + 0.01 * good.update("w") * (np.arange(20) == 3)}
    with pytest.raises(AssertionError, match="update of `w` is off") as caught:
        assert_agrees(replace(good, final=wrong), good)
    assert "value" not in str(caught.value)


def test_a_parameter_that_is_not_a_number_is_reported() -> None:
    good = _run()
    wrong = {**good.final, "b": np.full(4, np.nan)}
    with pytest.raises(AssertionError, match="value of `b` is off by nan"):
        assert_agrees(replace(good, final=wrong), good)


def test_a_loss_that_is_off_is_reported() -> None:
    with pytest.raises(AssertionError, match="a loss is off"):
        assert_agrees(replace(_run(), losses=(2.0, 1.501)), _run())


def test_a_parameter_that_moved_and_should_not_is_reported() -> None:
    good = _run()
    still = {**good.final, "w": good.initial["w"]}
    with pytest.raises(AssertionError, match="update of `w` is off by inf"):
        assert_agrees(good, replace(good, final=still))
