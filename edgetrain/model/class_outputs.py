"""What a model's file says of its classes, read from its structure alone: no weight is needed, nothing is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx

from edgetrain.errors import ModelError
from edgetrain.files.texts import parse_json
from edgetrain.model.head import HeadSize, head_size

# Where a trained model keeps how its data was read, `class_names` among it.
READING_KEY = "edgetrain.reading"
_RANK = 2  # of an output that tells classes apart: (batch, classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassOutputs:
    """`names` are in the order of the outputs; empty where the file has none. Without a `head`, `why` none is found."""

    count: int
    names: tuple[str, ...] = ()
    head: HeadSize | None = None
    why: str = ""


def class_outputs(model: onnx.ModelProto, *, output: str = "", head: str = "") -> ClassOutputs | None:
    """Of the trained `output`; None where it is not one number for each class, or the file does not say how many."""
    position = next((i for i, o in enumerate(model.graph.output) if o.name == output), 0)
    count = _count(model, position)
    if count is None:
        return None
    names = class_names_of(model)
    try:
        return ClassOutputs(
            count=count,
            names=names if len(names) == count else (),
            head=head_size(model, head, output=output),
        )
    except ModelError as error:
        return ClassOutputs(count=count, names=names if len(names) == count else (), why=error.why or error.what)


def class_names_of(model: onnx.ModelProto) -> tuple[str, ...]:
    """The classes' names that a run left in its model; none where the file has none, or none that can be read."""
    text = next((entry.value for entry in model.metadata_props if entry.key == READING_KEY), "")
    try:
        names = parse_json(text)["class_names"]
    except (ValueError, KeyError, TypeError):
        return ()
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list else ()


def _count(model: onnx.ModelProto, position: int) -> int | None:
    if position >= len(model.graph.output):
        return None
    declared = _classes_in(model.graph.output[position])
    if declared is not None:
        return declared or None
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # custom ops, or a file above protobuf's limit: the compiler finds out
        return None
    return _classes_in(inferred.graph.output[position]) or None


def _classes_in(value: Any) -> int | None:
    """The second of two dimensions; 0 for another rank, None where the file does not say."""
    shape = value.type.tensor_type.shape
    if not value.type.tensor_type.HasField("shape"):
        return None
    if len(shape.dim) != _RANK:
        return 0
    return int(shape.dim[1].dim_value) if shape.dim[1].HasField("dim_value") else None
