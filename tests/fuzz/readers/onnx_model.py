"""A model file, up to the graph of its operations. No kernel is compiled."""

from __future__ import annotations

from random import Random

import onnx

from benchmarks.importing.fuzzing import BATCH
from benchmarks.importing.onnx_mutations import mutate as broken
from edgetrain.model.class_outputs import class_names_of, class_outputs
from edgetrain.model.head import replace_head
from edgetrain.model.importer import import_model
from edgetrain.model.load import load_onnx, require_texts
from edgetrain.model.output import trained_output
from tests.fuzz.harness import Change, documented, file_of


def one_input(data: bytes) -> None:
    with file_of(data, "model.onnx") as path:
        with documented():
            model = load_onnx(path)
            class_names_of(model)
            class_outputs(model)
            replace_head(model, 7, seed=0)
        with documented():
            _import(data)


def _import(data: bytes) -> None:
    """Also what ONNX's checker refuses, which is most: the importer must not depend on it."""
    try:
        model = onnx.ModelProto.FromString(data)
    except Exception:  # protobuf's, of bytes that do not parse
        return
    require_texts(model.graph)
    import_model(model, name="model", batch=BATCH, output=trained_output(model))


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    """Fields of the graph are changed: of other bytes hardly any would get past the parser."""
    if random.random() < 0.1:
        return change(data)
    try:
        model = onnx.ModelProto.FromString(data)
        return broken(model, random.randrange(2**32))
    except Exception:  # protobuf's errors, and those of a graph that is too broken to be changed again
        return change(data)
