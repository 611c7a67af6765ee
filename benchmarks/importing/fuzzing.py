"""Imports one broken file: makes the file from its number, and reports the result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from benchmarks.importing import converter_cases
from benchmarks.importing.attention_cases import ATTENTION_CASES
from benchmarks.importing.more_converter_cases import MORE_CASES
from benchmarks.importing.onnx_models import mlp, model_of
from benchmarks.importing.onnx_mutations import mutate
from benchmarks.importing.signal_cases import SIGNAL_CASES
from edgetrain.errors import EdgetrainError, InternalError, ModelError
from edgetrain.model.importer import import_model
from edgetrain.model.load import load_onnx
from edgetrain.model.output import trained_output
from edgetrain.model.zoo import build_zoo_model

BATCH = 2


@cache
def networks() -> Sequence[onnx.ModelProto]:
    return mlp(), build_zoo_model("digits-cnn"), _branch()


@cache
def seeds() -> Sequence[onnx.ModelProto]:
    """Sound models to break: one node of every op, and networks a few times each."""
    nodes = [case.model() for case in (*converter_cases.CASES, *MORE_CASES, *ATTENTION_CASES, *SIGNAL_CASES)]
    return [*nodes, *list(networks()) * (len(nodes) // 12)]


def _branch() -> onnx.ModelProto:
    """A loop of three steps, then a branch on data."""
    node = helper.make_node
    body = helper.make_graph(
        [node("Identity", ["go"], ["goes"]), node("Tanh", ["a"], ["b"]), node("Mul", ["b", "w"], ["c"])],
        "body",
        [helper.make_empty_tensor_value_info(n) for n in ("i", "go", "a")],
        [helper.make_empty_tensor_value_info(n) for n in ("goes", "c", "b")],
    )
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["c3"], [name])], name, [], [helper.make_empty_tensor_value_info(name)]
        )
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    return model_of(
        [
            node("Loop", ["three", "", "x"], ["c3", "all"], body=body),
            node("ReduceMax", ["all"], ["top"], keepdims=0),
            node("Greater", ["top", "half"], ["positive"]),
            node("If", ["positive"], ["y"], **branches),
        ],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored={"three": np.array([3]), "w": np.array([0.5, 2.0, 1.0], np.float32), "half": np.array(0.5, np.float32)},
    )


def _unchecked(content: bytes) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's, for bytes that do not parse
        raise ModelError("the file does not parse") from error


def outcome_of(number: int, folder: Path) -> str:
    """`imported`, the name of a documented error, or `BUG …` for anything else."""
    models = seeds()
    model = models[number % len(models)]
    dims = model.graph.input[0].type.tensor_type.shape.dim
    content = mutate(model, number)
    path = folder / "broken.onnx"
    path.write_bytes(content)
    try:
        # Every other file skips the checker, which refuses most: the importer must not depend on it.
        proto = load_onnx(path) if number % 2 else _unchecked(content)
        output = trained_output(proto) if number % 3 == 0 else ""
        import_model(proto, name="broken", batch=dims[0].dim_value or BATCH, output=output)
    except InternalError as error:
        return f"BUG InternalError: {error.what}"
    except EdgetrainError as error:
        return type(error).__name__
    except Exception as error:  # what must not happen
        return f"BUG {type(error).__name__}: {str(error).strip()[:200]}"
    return "imported"
