"""Compares the gradients of a real ONNX file with PyTorch in float64, where finite differences could not decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.references import torch_reference
from benchmarks.references.optional_torch import IS_MISSING, torch
from benchmarks.references.trained import relative_difference
from edgetrain.graph.ir import LABELS, Role, TrainGraph
from edgetrain.model.output import trained_output
from edgetrain.run.checks.gradient_check import gradients_of
from edgetrain.run.engines.engine import Array, Engine


def worst_difference(engine: Engine, graph: TrainGraph, model: Path, trained: tuple[str, ...]) -> float | None:
    """The largest difference of any tensor's gradient of the mean squared error, as a share of its largest element.

    On the batch that the engine holds. None where PyTorch is missing, or an op that it would have to compute, or where
    it knows a trained tensor by another name.
    """
    if IS_MISSING:
        return None
    inputs = {t.name: engine.tensor(t.name).copy() for t in graph.by_role(Role.INPUT)}
    try:
        expected = _in_torch(onnx.load(str(model)), inputs, trained)
    except (NotImplementedError, KeyError):
        return None
    found = gradients_of(engine, trained)
    return max(relative_difference(found[name].reshape(expected[name].shape), expected[name]) for name in trained)


def _in_torch(proto: Any, inputs: dict[str, Array], names: tuple[str, ...]) -> dict[str, Array]:
    """Raises `KeyError` or `NotImplementedError` where it cannot say."""
    wanted = trained_output(proto) or proto.graph.output[0].name
    kept = [output for output in proto.graph.output if output.name == wanted]
    del proto.graph.output[:]
    proto.graph.output.extend(kept)
    model = torch_reference.TorchModel(proto)
    parameters = {name: model.parameters[name].requires_grad_() for name in names}
    first, *others = (i.name for i in proto.graph.input if i.name in inputs)
    tensors = {name: _tensor(inputs[name]) for name in (first, *others)}
    output = model.forward(tensors[first], {name: tensors[name] for name in others}, training_batchnorm=False)
    labels = _tensor(inputs[LABELS]).reshape(output.shape)
    torch.nn.functional.mse_loss(output, labels).backward()
    zero = {name: np.zeros(tuple(p.shape)) for name, p in parameters.items()}
    return {name: zero[name] if p.grad is None else p.grad.numpy() for name, p in parameters.items()}


def _tensor(value: Array) -> Any:
    tensor = torch.from_numpy(value)
    return tensor.double() if tensor.is_floating_point() else tensor
