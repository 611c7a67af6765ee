"""LoRA against PyTorch: ten steps, the frozen base to the last bit, and the merged model in onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.models import small_networks as models
from benchmarks.references.torch_reference import TorchModel
from benchmarks.references.trained import Array, Batch, make_batches, relative_difference
from edgetrain.graph.adapters import Adapter
from edgetrain.graph.options import LoraOptions, OptimizerOptions, TrainOptions
from edgetrain.run.files.export import write_trained_onnx
from tests.edgetrain.graph.stepping import Stepper, stepper

pytestmark = [pytest.mark.compile]

LEARNING_RATE = 0.02
SEED = 5
CASES = {
    "mlp": (models.MLP_INPUTS,),
    "transformer": models.TRANSFORMER_IMAGE,
    "batch_norm_cnn": models.BATCH_NORM_IMAGE,
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Ten steps of ours: what they started from and where they ended."""

    proto: Any
    batches: Sequence[Batch]
    losses: Sequence[float]
    stepper: Stepper


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest) -> Run:
    proto = getattr(models, request.param)()
    options = TrainOptions(
        batch=4,
        optimizer=OptimizerOptions(momentum=0.9),
        update_mode="lora",
        update_names=("head.*",),
        lora=LoraOptions(rank=3, alpha=6.0, seed=SEED),
        batchnorm="frozen",
    )
    batches = make_batches(CASES[request.param], models.CLASSES, loss=options.loss, size=4, seed=SEED)
    ours = stepper(proto, options)
    losses = [ours.step(b.data, b.labels, learning_rate=LEARNING_RATE) for b in batches]
    return Run(proto=proto, batches=batches, losses=losses, stepper=ours)


def torch_run(run: Run) -> tuple[list[float], dict[str, Array]]:
    """The same steps with W + scale · B·A computed by torch, in float64."""
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0")
    model, built = TorchModel(run.proto), run.stepper.built
    trained = {n: torch.from_numpy(built.initial[n].astype(np.float64)).requires_grad_() for n in built.trained}
    frozen = dict(model.parameters)

    def effective(adapter: Adapter) -> Any:
        down, up, weight = trained[adapter.down], trained[adapter.up], frozen[adapter.weight]
        product = up.reshape(-1, adapter.rank) @ down.reshape(adapter.rank, -1)
        return weight + adapter.scale * (product.T if adapter.transposed else product.reshape(weight.shape))

    optimizer = torch.optim.SGD(list(trained.values()), lr=LEARNING_RATE, momentum=0.9)
    losses = []
    for batch in run.batches:
        model.parameters |= {n: t for n, t in trained.items() if n in frozen}
        model.parameters |= {a.weight: effective(a) for a in built.adapters if isinstance(a, Adapter)}
        output = model.forward(torch.from_numpy(batch.data).double(), training_batchnorm=False)
        loss = torch.nn.functional.cross_entropy(output, torch.from_numpy(batch.labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {n: t.detach().numpy() for n, t in trained.items()}


@pytest.mark.usefixtures("needs_torch")
def test_ten_steps_are_those_of_torch(run: Run) -> None:
    losses, final = torch_run(run)
    np.testing.assert_allclose(run.losses, losses, rtol=1e-3)
    for name, expected in final.items():
        moved = expected - run.stepper.built.initial[name]
        assert np.abs(moved).max() > 0
        found = run.stepper.values[name].astype(np.float64) - run.stepper.built.initial[name]
        assert relative_difference(found, moved) < 1e-3, name


def test_the_frozen_base_keeps_every_byte(run: Run) -> None:
    built = run.stepper.built
    frozen = [n for n in models.initial_parameters(run.proto) if n not in built.trained]
    assert {a.weight for a in built.adapters} <= set(frozen)
    for name in frozen:
        assert run.stepper.values[name].tobytes() == built.initial[name].tobytes(), name


def test_the_merged_model_says_in_onnxruntime_what_evaluate_says(run: Run, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    onnx.save(run.proto, str(tmp_path / "model.onnx"))
    parameters = {n: run.stepper.values[n] for n, t in run.stepper.built.tensors.items() if t.role == "parameter"}
    write_trained_onnx(
        tmp_path / "model.onnx", parameters, tmp_path / "trained.onnx", adapters=run.stepper.built.adapters
    )
    data = run.batches[0].data
    expected = run.stepper.evaluate(data)

    def outputs(name: str) -> Array:
        session = runtime.InferenceSession(str(tmp_path / name), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"image": data})
        return np.asarray(found)

    assert relative_difference(outputs("trained.onnx"), expected) < 1e-4
    assert relative_difference(outputs("model.onnx"), expected) > 1e-2, "training changed nothing: an old model passes"
