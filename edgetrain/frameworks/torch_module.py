"""A PyTorch module as a model to train: exported with BatchNorm and every parameter under its own name."""

from __future__ import annotations

import copy
import glob
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from edgetrain.errors import UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.scratch import scratch_folder
from edgetrain.frameworks.torch_inputs import Call, fitting_call
from edgetrain.model.export_warnings import EXPORT_LINE
from edgetrain.model.undo_exporter import undo_exporter

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModule:
    """The file, and the names of the parameters that PyTorch would train, where the file has others too."""

    path: Path
    trained: tuple[str, ...] | None = None

    def with_update(self, overrides: Mapping[str, object]) -> dict[str, object]:
        """`overrides` that train what PyTorch would, unless they choose an update mode themselves."""
        if self.trained is None or "update_mode" in overrides:
            return dict(overrides)
        names = tuple(map(glob.escape, self.trained))
        return {**overrides, "update_mode": "names", "update_names": names}


def export_module(module: Any, samples: Sequence[Any], path: Path) -> ExportedModule:
    """Writes `module` to `path` as ONNX. It stays as it is: its mode, its device, its weights.

    `samples` are what one batch consists of, converted as in training. Buffers, and parameters that need no gradient,
    are in the file but not to be trained. Raises `UsageError` where the module cannot be copied, called or exported.
    """
    own = _copy_of(module)
    call = fitting_call(own, samples)
    proto = _exported(own, call)
    with replaced_file(path) as file:
        file.write(proto.SerializeToString())
    trainable = {name for name, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    stored = _learned(undo_exporter(proto).model)
    if not stored & trainable:
        raise UsageError(
            f"`{type(module).__name__}` has no parameter to train",
            why="none of those that its output depends on requires a gradient",
            fix="call `module.requires_grad_(True)`",
        )
    return ExportedModule(path=path, trained=tuple(sorted(stored & trainable)) if stored - trainable else None)


def _copy_of(module: Any) -> Any:
    try:
        own = copy.deepcopy(module)
    except Exception as error:  # whatever a module's own attributes raise
        raise UsageError(
            f"`{type(module).__name__}` cannot be copied",
            why=f"exporting must not change it, and copying fails: {_first_line(error)}",
            fix=f"export it yourself and pass the file: `{EXPORT_LINE}`",
        ) from error
    return own.cpu().float().eval()  # a model in use: no dropout, no branch that only training takes


def _traced(module: Any, call: Call) -> Any:
    import torch

    file = io.BytesIO()
    axes = {name: {0: "batch"} for name in call.names}
    forward = module.forward

    def given_alone(*tensors: Any) -> Any:
        positional = tensors[: len(call.positional)]
        return forward(*positional, **dict(zip(call.keywords, tensors[len(positional) :], strict=True)))

    module.forward = given_alone  # else the exporter makes inputs of what `forward` has defaults for
    try:
        torch.onnx.export(
            module,
            call.tensors,
            file,
            dynamo=False,
            do_constant_folding=False,  # folding is what takes BatchNorm away
            input_names=list(call.names),
            dynamic_axes=axes,
        )
    finally:
        del module.forward
    return onnx.load_from_string(file.getvalue())


def _captured(module: Any, call: Call) -> Any:
    import torch

    with scratch_folder("export") as folder:
        path = Path(folder) / "module.onnx"
        torch.onnx.export(
            module,
            tuple(call.positional),
            str(path),
            kwargs=dict(call.keywords),
            dynamo=True,
            optimize=False,  # optimizing is what takes BatchNorm away
            verbose=False,
            input_names=list(call.names),
        )
        return onnx.load(str(path))


# The first keeps the batch open and needs nothing but torch; the second follows what tracing cannot.
_EXPORTERS: Mapping[str, Callable[[Any, Call], Any]] = {"dynamo=False": _traced, "dynamo=True": _captured}


def _exported(module: Any, call: Call) -> Any:
    problems = []
    for name, export in _EXPORTERS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporters, on themselves
            try:
                return export(module, call)
            except Exception as error:  # exporters raise whatever they meet
                problems.append(f"with {name}: {_first_line(error)}")
    raise UsageError(
        f"PyTorch cannot export `{type(module).__name__}`",
        why="; ".join(problems),
        fix="install what the newer exporter needs (`pip install 'edgetrain[torch]'`), or export the module yourself: "
        f"`{EXPORT_LINE}`",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _learned(proto: Any) -> set[str]:
    """What the importer takes for parameters, statistics left out."""
    norms = [node for node in proto.graph.node if node.op_type == "BatchNormalization"]
    statistics = {name for node in norms for name in node.input[3:5]}
    stored = {t.name for t in proto.graph.initializer if t.data_type in _FLOATS and _elements(t) > 1}
    constants = {n.output[0] for n in proto.graph.node if n.op_type == "Constant" and _holds_floats(n)}
    return (stored | constants) - statistics


def _holds_floats(node: Any) -> bool:
    return any(a.HasField("t") and a.t.data_type in _FLOATS and _elements(a.t) > 1 for a in node.attribute)


def _elements(tensor: Any) -> int:
    count = 1
    for extent in tensor.dims:
        count *= int(extent)
    return count
