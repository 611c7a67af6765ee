"""The step in ONNX Runtime's training API: the same ONNX file, its gradient graph built by ONNX Runtime.

Its optimizers are AdamW and SGD without momentum; SGD, the cheaper one, stands in for ours. It also wants torch to be
installed, and uses it for nothing here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime import SessionOptions
from onnxruntime.training import api, artifacts

from benchmarks.peers.protocol import LABELS, CannotError, Job, Step
from benchmarks.peers.step_graph import StepGraph, read_step_graph

_MORE_OUTPUTS: Mapping[str, Sequence[str]] = {
    "BatchNormalization": ("mean", "variance"),
    "LayerNormalization": ("mean", "inverse_deviation"),
}
VERSION = f"onnxruntime-training {onnxruntime.__version__}"


def build(job: Job) -> Step:
    graph, folder, _ = _generated(job)
    options = SessionOptions()
    options.intra_op_num_threads = job.threads
    state = api.CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    module = api.Module(folder / "training_model.onnx", state, device="cpu", session_options=options)
    optimizer = api.Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(job.learning_rate)
    batch = job.batch()
    inputs = [*(batch[name] for name in graph.inputs), batch[LABELS]]
    module.train()

    def step() -> float:
        loss = module(*inputs)
        optimizer.step()
        module.lazy_reset_grad()
        return float(loss[0] if isinstance(loss, tuple) else loss)

    return step


@cache
def _generated(job: Job) -> tuple[StepGraph, Path, Any]:
    """The training artifacts in a folder that lives as long as this process."""
    graph = read_step_graph(job.path)
    folder = tempfile.TemporaryDirectory()
    try:
        artifacts.generate_artifacts(
            _in_training_mode(onnx.load(str(job.path))),
            requires_grad=list(graph.parameters),
            frozen_params=list(graph.statistics),
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=artifacts.OptimType.SGD,
            artifact_directory=folder.name,
        )
    except Exception as error:  # its errors have no class in common; the benchmark's row says what it said
        raise CannotError(f"no gradient graph: {str(error).splitlines()[0]}") from error
    return graph, Path(folder.name), folder


def _in_training_mode(model: onnx.ModelProto) -> onnx.ModelProto:
    """BatchNorm with the batch's statistics; both norms with the outputs that their gradients are computed from."""
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
        if node.op_type in _MORE_OUTPUTS:
            node.output.extend(f"{node.output[0]}/{name}" for name in _MORE_OUTPUTS[node.op_type])
    return model
