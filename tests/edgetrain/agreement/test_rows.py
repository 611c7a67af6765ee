"""Training some of a weight's outputs against PyTorch with the gradient of the others set to 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.models import small_networks as models
from benchmarks.references.torch_reference import TorchModel
from benchmarks.references.trained import Array, make_batches, relative_difference
from edgetrain.graph.adapters import RowDelta, merge_adapters
from edgetrain.graph.options import OptimizerOptions, SparseOptions, TrainOptions
from edgetrain.run.files.export import write_trained_onnx
from tests.edgetrain.graph.stepping import Stepper, stepper

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("needs_torch")]

LEARNING_RATE = 0.02
SEED = 5
# The model, its input, and the weights of which a half of the outputs is trained.
CASES: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "mlp": ((models.MLP_INPUTS,), ("first.weight", "second.weight")),
    "transformer": (models.TRANSFORMER_IMAGE, ("query.weight", "expand.weight")),
    "batch_norm_cnn": (models.BATCH_NORM_IMAGE, ("conv0.weight", "conv1.weight")),
}


def halves(proto: Any, weights: tuple[str, ...]) -> SparseOptions:
    """Scores for which a half of each of the weights, and nothing else, is the best choice."""
    shapes = {n: a.shape for n, a in models.initial_parameters(proto).items()}
    outputs = {w: shapes[w][1] if proto.graph.name == "transformer" else shapes[w][0] for w in weights}
    # Every other output, and in the second weight the first half: apart and side by side.
    rows = {
        weight: tuple(1.0 if (i % 2 if place == 0 else i < count // 2) else 0.0 for i in range(count))
        for place, (weight, count) in enumerate(outputs.items())
    }
    # The whole is worth a little less, so that the half is taken though the budget has room for all.
    return SparseOptions(budget_bytes=10**9, scores={w: sum(r) * 0.9 for w, r in rows.items()}, row_scores=rows)


@pytest.fixture(scope="module", params=CASES)
def trained(request: pytest.FixtureRequest) -> tuple[Any, Stepper, list[Any], list[float]]:
    image, weights = CASES[request.param]
    proto = getattr(models, request.param)()
    options = TrainOptions(
        batch=4,
        optimizer=OptimizerOptions(momentum=0.9),
        update_mode="sparse",
        sparse=halves(proto, weights),
        batchnorm="frozen",
    )
    ours = stepper(proto, options)
    assert {a.weight for a in ours.built.adapters} == set(weights)
    batches = make_batches(image, models.CLASSES, loss=options.loss, size=4, seed=SEED)
    losses = [ours.step(b.data, b.labels, learning_rate=LEARNING_RATE) for b in batches]
    return proto, ours, batches, losses


def rest_of(delta: RowDelta, weight: Any) -> list[int]:
    """The outputs that are not trained."""
    return [row for row in range(weight.shape[delta.axis]) if row not in delta.rows]


def torch_weights(proto: Any, deltas: list[RowDelta], batches: list[Any]) -> tuple[list[float], dict[str, Array]]:
    import torch

    model = TorchModel(proto)
    weights = {d.weight: model.parameters[d.weight].requires_grad_() for d in deltas}
    optimizer = torch.optim.SGD(list(weights.values()), lr=LEARNING_RATE, momentum=0.9)
    losses = []
    for batch in batches:
        output = model.forward(torch.from_numpy(batch.data).double(), training_batchnorm=False)
        loss = torch.nn.functional.cross_entropy(output, torch.from_numpy(batch.labels))
        optimizer.zero_grad()
        loss.backward()
        for delta in deltas:
            weights[delta.weight].grad.movedim(delta.axis, 0)[rest_of(delta, weights[delta.weight])] = 0.0
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {n: w.detach().numpy() for n, w in weights.items()}


def merged(ours: Stepper) -> dict[str, Array]:
    parameters = {n: ours.values[n] for n, t in ours.built.tensors.items() if t.role == "parameter"}
    return {name: value() for name, value in merge_adapters(parameters, ours.built.adapters).items()}


def test_ten_steps_are_those_of_torch_with_the_other_outputs_frozen(trained: Any) -> None:
    proto, ours, batches, losses = trained
    expected_losses, expected = torch_weights(proto, list(ours.built.adapters), batches)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-3)
    found, before = merged(ours), models.initial_parameters(proto)
    for name, value in expected.items():
        moved = value - before[name]
        assert np.abs(moved).max() > 0
        assert relative_difference(found[name].astype(np.float64) - before[name], moved) < 1e-3, name


def test_outputs_that_were_not_chosen_keep_every_byte(trained: Any) -> None:
    proto, ours, _, _ = trained
    found, before = merged(ours), models.initial_parameters(proto)
    for delta in ours.built.adapters:
        kept = rest_of(delta, before[delta.weight])
        rest = [np.moveaxis(w[delta.weight], delta.axis, 0)[kept] for w in (found, before)]
        assert rest[0].size
        assert rest[0].tobytes() == rest[1].tobytes()


def test_gradient_and_state_have_the_size_of_the_chosen_rows(trained: Any) -> None:
    _, ours, _, _ = trained
    for delta in ours.built.adapters:
        tensors = ours.built.tensors
        assert tensors[f"momentum:{delta.delta}"].shape == tensors[delta.delta].shape
        assert f"momentum:{delta.weight}" not in tensors
        outputs = tensors[delta.weight].shape[delta.axis]
        assert tensors[delta.delta].shape[delta.axis] == len(delta.rows) == outputs // 2


def test_the_merged_model_says_in_onnxruntime_what_evaluate_says(trained: Any, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    proto, ours, batches, _ = trained
    onnx.save(proto, str(tmp_path / "model.onnx"))
    parameters = {n: ours.values[n] for n, t in ours.built.tensors.items() if t.role == "parameter"}
    write_trained_onnx(tmp_path / "model.onnx", parameters, tmp_path / "trained.onnx", adapters=ours.built.adapters)
    session = runtime.InferenceSession(str(tmp_path / "trained.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"image": batches[0].data})
    assert relative_difference(np.asarray(found), ours.evaluate(batches[0].data)) < 1e-4
