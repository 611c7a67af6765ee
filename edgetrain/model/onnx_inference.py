"""What an ONNX model says about samples, without compiling it: by ONNX Runtime where that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

_ROWS = 256


def outputs_of(model: bytes, samples: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The first output for each sample, of a model with one input. Without ONNX Runtime by ONNX's own reference
    evaluator, which needs nothing and takes longer."""
    run = _runner(model)
    rows = [run(samples[start : start + _ROWS]) for start in range(0, len(samples), _ROWS)]
    return np.concatenate(rows) if rows else run(samples[:0])


def declared_outputs(model: Any) -> int | None:
    """How many values a model in memory or in an .onnx file declares for a sample; None where it does not say."""
    if isinstance(model, str | Path):
        if not (str(model).endswith(".onnx") and Path(model).is_file()):
            return None
        model = onnx.load(str(model), load_external_data=False)
    if not isinstance(model, onnx.ModelProto) or not model.graph.output:
        return None
    sizes = model.graph.output[0].type.tensor_type.shape.dim
    return int(sizes[-1].dim_value) or None if len(sizes) == 2 else None


def _runner(model: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(onnx.load_model_from_string(model))
        return lambda rows: evaluator.run(None, {evaluator.input_names[0]: rows})[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(None, {session.get_inputs()[0].name: rows})[0]
