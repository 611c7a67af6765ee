"""A trained ONNX file as a model that predicts: by onnxruntime where it is installed, else by onnx's own evaluator.

The evaluator is slow, and always there: the onnx package brings it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.bounds import Bounds
from edgetrain.errors import ModelError
from edgetrain.run.engines.engine import Array
from edgetrain.run.predict.task import Description

_BATCH = 32  # where the file leaves it open
_ACTIVATIONS: Mapping[str, str] = {"classes": "Softmax", "yes-no": "Sigmoid"}

Run = Callable[[Mapping[str, Array]], Array]


@dataclass(frozen=True, kw_only=True)
class OnnxModel:
    """Satisfies `Model`."""

    description: Description
    inputs: Mapping[str, Array]
    is_activated: bool
    run: Run
    bounds: Bounds = field(default_factory=dict)  # the evaluator looks for itself

    def outputs(self) -> Array:
        try:
            return self.run(self.inputs)
        except Exception as error:  # each evaluator has its own, without a common base
            raise ModelError(
                "the model cannot be run from its ONNX file",
                why=(str(error).strip().splitlines() or [type(error).__name__])[0],
                fix="`pip install onnxruntime`, or give the run's folder instead of its model",
            ) from error


def open_onnx_model(path: Path) -> OnnxModel:
    """The model in a file that `edgetrain fit` wrote.

    Raises `ModelError` for a file that is missing or broken, or does not say how its data is to be read.
    """
    from edgetrain.model.load import load_onnx

    proto = load_onnx(path)
    properties = {entry.key: entry.value for entry in proto.metadata_props}
    description = Description.from_metadata(properties, where=str(path)).beside(path.parent)
    task = description.task
    if task.output not in {output.name for output in proto.graph.output}:
        raise ModelError(f"`{path}` has no output `{task.output}`, which its metadata names", fix="export it again")
    return OnnxModel(
        description=description,
        inputs=_buffers(proto, description, path),
        # Whoever else runs the file expects values in their own units: it gives them so.
        is_activated=task.kind == "values" or _producer(proto, task.output) == _ACTIVATIONS.get(task.kind),
        run=_onnxruntime(path, task.output) or _reference(proto, task.output),
    )


def _buffers(proto: Any, description: Description, path: Path) -> Mapping[str, Array]:
    """An array for each input, of the file's batch where it has a fixed one."""
    from onnx import helper

    declared = {value.name: value.type.tensor_type for value in proto.graph.input}
    missing = [name for name in description.task.inputs if name not in declared]
    if missing:
        raise ModelError(f"`{path}` has no input `{missing[0]}`, which its metadata names", fix="export it again")
    fixed = [t.shape.dim[0].dim_value for n, t in declared.items() if n in description.task.inputs and t.shape.dim]
    batch = next((size for size in fixed if size > 0), _BATCH)
    return {
        name: np.zeros((batch, *shape.shape), helper.tensor_dtype_to_np_dtype(declared[name].elem_type))
        for name, shape in description.task.inputs.items()
    }


def _producer(proto: Any, output: str) -> str:
    """The op that gives the output, beneath any that only rename it."""
    by_output = {name: node for node in proto.graph.node for name in node.output}
    node = by_output.get(output)
    while node is not None and node.op_type == "Identity":
        node = by_output.get(node.input[0])
    return str(node.op_type) if node is not None else ""


def _onnxruntime(path: Path, output: str) -> Run | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception:  # an opset that is newer than the installed version, say: the evaluator may know it
        return None

    def run(inputs: Mapping[str, Array]) -> Array:
        result: Array = session.run([output], dict(inputs))[0]
        return result

    return run


def _reference(proto: Any, output: str) -> Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(proto)

    def run(inputs: Mapping[str, Array]) -> Array:
        result: Any = evaluator.run([output], dict(inputs))
        return np.asarray(result[0])

    return run
