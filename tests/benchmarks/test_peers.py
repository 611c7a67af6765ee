"""A peer trains the graph it is given: its losses are those of the agreement tests' interpreter.

The other peers' first losses are compared with ours whenever they are timed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.models import small_networks
from benchmarks.peers.process import PeerProcess
from benchmarks.peers.protocol import LABELS, Job
from benchmarks.references import optional_torch, torch_reference
from benchmarks.references.trained import Batch, make_batches
from edgetrain.graph.options import OptimizerOptions, TrainOptions

STEPS, BATCH = 3, 4
RATE, MOMENTUM = 0.01, 0.9
OPTIONS = TrainOptions(batch=BATCH, optimizer=OptimizerOptions(kind="sgd", momentum=MOMENTUM))
MODELS = {
    "mobilenet": (small_networks.mobilenet, small_networks.MOBILENET_IMAGE),
    "resnet": (small_networks.resnet18, small_networks.RESNET_IMAGE),
    "transformer": (small_networks.transformer, small_networks.TRANSFORMER_IMAGE),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_torch_peer_has_the_losses_of_the_reference(name: str, tmp_path: Path) -> None:
    if optional_torch.IS_MISSING:
        pytest.skip(f"compares with PyTorch: {optional_torch.INSTALL}")
    build, shape = MODELS[name]
    model = build()
    (batch,) = make_batches(shape, small_networks.CLASSES, loss="cross-entropy", size=BATCH, seed=0, count=1)
    expected = torch_reference.train_in_torch(model, [batch] * STEPS, OPTIONS, learning_rate=RATE)
    with PeerProcess(written(model, batch, tmp_path), {}) as process:
        losses = [process.turn(1).loss for _ in range(STEPS)]
        assert process.grown_bytes() > 0
    np.testing.assert_allclose(losses, expected.losses, rtol=1e-3)


def written(model: onnx.ModelProto, batch: Batch, folder: Path) -> Job:
    """A job for PyTorch, its files in `folder`."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = BATCH
    onnx.save(model, folder / "model.onnx")
    with (folder / "parameters.npz").open("wb") as file:
        stored: dict[str, Any] = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        np.savez(file, **stored)
    with (folder / "batch.npz").open("wb") as file:
        arrays: dict[str, Any] = {model.graph.input[0].name: batch.data, LABELS: batch.labels}
        np.savez(file, **arrays)
    return Job(
        peer="torch",
        model=str(folder / "model.onnx"),
        parameters=str(folder / "parameters.npz"),
        data=str(folder / "batch.npz"),
        threads=1,
        learning_rate=RATE,
        momentum=MOMENTUM,
    )
