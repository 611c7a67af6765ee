"""Modules that PyTorch exports in every way it knows train as they do in PyTorch, which trains the module itself."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.references.optional_torch import F, torch
from benchmarks.references.trained import VALUE_TOLERANCE, Batch, Trained, assert_agrees, relative_difference
from benchmarks.references.workshop import Workshop, outputs_of
from edgetrain.graph.options import OptimizerOptions, TrainOptions

pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("needs_torch"),
    pytest.mark.filterwarnings("ignore"),  # of the exporters, on themselves
]

RATE, MOMENTUM, SIZE = 0.05, 0.9, 8
OPTIONS = TrainOptions(batch=SIZE, optimizer=OptimizerOptions(kind="sgd", momentum=MOMENTUM))
WAYS: Mapping[str, Mapping[str, Any]] = {
    "torchscript": {"dynamo": False, "do_constant_folding": False},
    "torchscript-folded": {"dynamo": False, "do_constant_folding": True},
    "dynamo": {"dynamo": True, "optimize": False, "verbose": False},
    "dynamo-optimized": {"dynamo": True, "optimize": True, "verbose": False},
}


def module_of(name: str) -> Any:
    torch.manual_seed(0)
    return getattr(import_module("benchmarks.models.torch_modules"), name)()


def exported(module: Any, way: str, batch: Batch, folder: Path, *, mode: str = "eval") -> onnx.ModelProto:
    if way.startswith("dynamo"):
        pytest.importorskip("onnxscript", reason="exports with dynamo=True: pip install onnxscript")
    module = copy.deepcopy(module)  # tracing in training mode moves running statistics
    getattr(module, mode)()
    flags = {"training": torch.onnx.TrainingMode.TRAINING} if mode == "train" and "torchscript" in way else {}
    torch.onnx.export(module, (torch.from_numpy(batch.data),), str(folder / "m.onnx"), **WAYS[way], **flags)
    return onnx.load(str(folder / "m.onnx"))


def batches_of(name: str, count: int = 10) -> list[Batch]:
    """The class is the third of the picture, or of the vocabulary, that is brightest, or most frequent."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        labels = rng.integers(0, 3, SIZE)
        data: Any
        if name == "TinyResNet":
            data = rng.standard_normal((SIZE, 1, 8, 8)).astype(np.float32)
            for row, label in enumerate(labels):
                data[row, :, label * 3 : label * 3 + 2] += 2.5
        else:
            data = rng.integers(0, 12, (SIZE, 6))
            data[:, :4] = labels[:, np.newaxis] * 4 + rng.integers(0, 4, (SIZE, 4))
        found.append(Batch(data=data, labels=labels))
    return found


@functools.cache
def trained_in_torch(name: str, count: int = 10) -> tuple[Trained, Any]:
    """PyTorch's own training in float64, and the module it made: the same however it is exported."""
    module, batches = module_of(name).double().train(), batches_of(name, count)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    initial, losses = arrays(module), []
    for batch in batches:
        loss = F.cross_entropy(module(double(batch.data)), torch.from_numpy(batch.labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return Trained(losses=tuple(losses), initial=initial, final=arrays(module)), module.eval()


def double(data: Any) -> Any:
    tensor = torch.from_numpy(data)
    return tensor.double() if tensor.is_floating_point() else tensor


def arrays(module: Any) -> dict[str, Any]:
    return {name: v.numpy().copy() for name, v in module.state_dict().items() if v.is_floating_point()}


def common(run: Trained, names: set[str]) -> Trained:
    return Trained(
        losses=run.losses,
        initial={n: a for n, a in run.initial.items() if n in names},
        final={n: a for n, a in run.final.items() if n in names},
    )


def agrees_by_name(found: Trained, wanted: Trained, *, missing: set[str]) -> None:
    """Every tensor of the module but `missing` has its name in the file, and ends where PyTorch's does."""
    assert set(wanted.final) - set(found.final) == missing
    names = set(found.final) & set(wanted.final)
    assert_agrees(common(found, names), common(wanted, names))


# Of a tied weight one name is stored.
@pytest.mark.parametrize(
    ("name", "way", "missing"),
    [
        ("TinyResNet", "torchscript", set()),
        ("TinyResNet", "dynamo", set()),
        ("TinyTransformer", "torchscript", {"scores.weight"}),
        ("TinyTransformer", "dynamo", {"embedding.weight"}),
    ],
)
def test_every_tensor_ends_where_pytorch_moves_it(
    name: str, way: str, missing: set[str], workshop: Workshop, tmp_path: Path
) -> None:
    module, batches = module_of(name), batches_of(name)
    proto = exported(module, way, batches[0], tmp_path)
    found = workshop.train_model(proto, batches, OPTIONS, learning_rate=RATE)
    wanted, _ = trained_in_torch(name)
    agrees_by_name(found, wanted, missing=missing)


@pytest.mark.parametrize("way", ["torchscript-folded", "dynamo-optimized"])
def test_a_transformer_whose_matrices_the_exporter_turned_and_merged_learns_the_same(
    way: str, workshop: Workshop, tmp_path: Path
) -> None:
    module, batches = module_of("TinyTransformer"), batches_of("TinyTransformer")
    proto = exported(module, way, batches[0], tmp_path)
    found = workshop.train_model(proto, batches, OPTIONS, learning_rate=RATE)
    wanted, _ = trained_in_torch("TinyTransformer")
    assert relative_difference(np.array(found.losses), np.array(wanted.losses)) < VALUE_TOLERANCE
    assert sum(a.size for a in found.final.values()) == sum(p.numel() for p in module.parameters())


def test_a_module_exported_in_training_mode_learns_the_same(workshop: Workshop, tmp_path: Path) -> None:
    module, batches = module_of("TinyResNet"), batches_of("TinyResNet")
    proto = exported(module, "torchscript", batches[0], tmp_path, mode="train")
    assert any(a.name == "training_mode" and a.i for node in proto.graph.node for a in node.attribute)
    found = workshop.train_model(proto, batches, OPTIONS, learning_rate=RATE)
    wanted, _ = trained_in_torch("TinyResNet")
    assert relative_difference(np.array(found.losses), np.array(wanted.losses)) < VALUE_TOLERANCE


@pytest.mark.parametrize("way", ["torchscript-folded", "dynamo-optimized"])
def test_without_its_batch_norms_a_resnet_still_reaches_pytorchs_accuracy(
    way: str, workshop: Workshop, tmp_path: Path
) -> None:
    module, batches = module_of("TinyResNet"), batches_of("TinyResNet", 120)
    test = batches_of("TinyResNet", 130)[120:]
    proto = exported(module, way, batches[0], tmp_path)
    assert not any(node.op_type == "BatchNormalization" for node in proto.graph.node)
    compiled = workshop.compile(proto, OPTIONS)
    assert "folded BatchNorm" in "".join(compiled.facts["warnings"])
    found = workshop.train(compiled, batches, OPTIONS, learning_rate=RATE)
    _, wanted = trained_in_torch("TinyResNet", 120)
    program = workshop.build(compiled, workshop.plan(compiled))
    right = []
    with workshop.engine(program) as engine:
        for name, value in found.final.items():
            engine.tensor(name)[...] = value
        for batch in test:
            right.append(outputs_of(engine, compiled, batch.data).argmax(1) == batch.labels)
    with torch.no_grad():
        in_torch = [(wanted(double(b.data)).argmax(1).numpy() == b.labels) for b in test]
    assert np.mean(in_torch) >= 0.95
    assert np.mean(right) >= 0.95
