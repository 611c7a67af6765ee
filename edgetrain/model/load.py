"""Reading an ONNX file, with every way it can be broken turned into one clear error."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import onnx

from edgetrain.errors import ModelError, UnsupportedError
from edgetrain.files.encrypted import is_encrypted
from edgetrain.files.regular_file import require_regular

OPSETS = range(7, 27)  # what the converters are written for; before 7, broadcasting was an attribute
ONNX_DOMAINS = ("", "ai.onnx")


def load_onnx(path: Path) -> Any:
    """The checked `onnx.ModelProto` in `path`, weights included.

    Raises `ModelError` when the file is missing, unreadable or not a valid ONNX model, and `UnsupportedError` for
    an opset outside `OPSETS`.
    """
    require_regular(path, ModelError)
    if not path.is_file():
        raise ModelError(
            f"no model file at `{path}`",
            why="the path is a directory" if path.is_dir() else "nothing is there",
            fix="give the path of an .onnx file, or a recipe name (`edgetrain recipes` lists them)",
        )
    proto = _parsed(path)
    side_files = sorted(_locations(proto.graph))
    for name in side_files:
        require_regular(path.parent / name, ModelError)
    try:
        onnx.load_external_data_for_model(proto, str(path.parent))
    except Exception as error:  # OSError, ValidationError and ValueError, by what is wrong with the file
        raise ModelError(
            f"cannot read the weights of the model `{path}`",
            why=_first_line(error),
            fix=f"copy {', '.join(f'`{n}`' for n in side_files)} beside the model, whole",
        ) from error
    check(proto, str(path))
    return proto


def external_files(path: Path) -> tuple[Path, ...]:
    """The files beside a model that hold weights of it, sorted; none where it cannot be read."""
    try:
        return tuple(path.parent / name for name in sorted(_locations(_parsed(path).graph)))
    except ModelError:
        return ()  # `load_onnx` says why


def _parsed(path: Path) -> Any:
    try:
        return onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise ModelError(f"cannot read the model `{path}`", why=str(error), fix="check the permissions") from error
    except Exception as error:  # protobuf raises its own DecodeError; onnx wraps some of them, not all
        if is_encrypted(path):
            raise ModelError(
                f"the model `{path}` is encrypted",
                why="it was trained in a run with a key",
                fix=f"export it from its run: `edgetrain export {shlex.quote(str(path.parent))} --onnx model.onnx`",
            ) from error
        raise ModelError(
            f"`{path}` is not an ONNX model",
            why=f"the file does not parse ({_first_line(error)})",
            fix="export the model again, or check that the download or copy is complete",
        ) from error


def _locations(graph: Any) -> set[str]:
    """Where tensors of `graph` and of its subgraphs are stored, for those that are not in the file."""
    tensors = [*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.HasField("t"))]
    found = {e.value for t in tensors for e in t.external_data if e.key == "location" and isinstance(e.value, str)}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _locations(attribute.g)
    return found


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def check(proto: Any, name: str) -> None:
    """Raises as `load_onnx` does, for a model that is in memory already."""
    if not proto.graph.node:
        raise ModelError(
            f"`{name}` is not an ONNX model",
            why="it parses, but holds no nodes",
            fix="export the model again, or check that the download or copy is complete",
        )
    require_texts(proto.graph)
    opset = opset_of(proto)
    if opset not in OPSETS:
        raise UnsupportedError(
            f"`{name}` uses ONNX opset {opset}; edgetrain reads opsets {OPSETS.start} to {OPSETS.stop - 1}",
            fix="export it again with opset_version=17",
        )
    try:
        onnx.checker.check_model(proto)
    except Exception as error:  # ValidationError, and others where a name is not text or a field is out of range
        if "No Op registered for" in str(error):
            return  # custom ops are reported by the importer, which names all of them
        raise ModelError(
            f"`{name}` is not a valid ONNX model",
            why=_first_line(error),
            fix="export the model again; `onnx.checker.check_model` must accept it",
        ) from error


def require_text(name: object) -> None:
    """Raises `ModelError` for a name whose bytes are not UTF-8, which protobuf hands over as they are."""
    if not isinstance(name, str):
        raise ModelError(f"a name in the model is not text: {name!r}", fix="export the model again")


def require_texts(graph: Any) -> None:
    """Of all names in the graph and its subgraphs: with an op that it does not know, ONNX's checker looks at none."""
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        require_text(value.name)
    for node in graph.node:
        for name in (node.name, node.op_type, node.domain, *node.input, *node.output):
            require_text(name)
        for attribute in node.attribute:
            require_text(attribute.name)
            if attribute.HasField("g"):
                require_texts(attribute.g)


def opset_of(proto: Any) -> int:
    versions = [o.version for o in proto.opset_import if o.domain in ONNX_DOMAINS]
    return max(versions, default=0)
