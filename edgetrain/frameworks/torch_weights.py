"""Trained weights back into the PyTorch module that they come from, by the names of its `state_dict`."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgetrain.errors import UsageError
from edgetrain.model.export_warnings import EXPORT_LINE

_MOST_NAMES = 3


def load_into(model: bytes, module: Any) -> None:
    """Copies every tensor of the ONNX file `model` that `module` has too; its mode and its device stay.

    Raises `UsageError`, before anything is changed, where a shape differs, or where the file calls parameters otherwise
    than the module does.
    """
    import onnx
    import torch
    from onnx import numpy_helper

    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load_model_from_string(model).graph.initializer}
    state = dict(module.state_dict(keep_vars=True))
    common = [name for name in stored if name in state]
    _require_shapes(stored, state, common)
    _require_names(stored, state, module)
    with torch.no_grad():
        for name in common:
            state[name].copy_(torch.from_numpy(np.array(stored[name])))


def _require_shapes(stored: dict[str, Any], state: dict[str, Any], common: list[str]) -> None:
    for name in common:
        if tuple(stored[name].shape) != tuple(state[name].shape):
            raise UsageError(
                f"`{name}` has the shape {list(stored[name].shape)} in the trained model "
                f"and {list(state[name].shape)} in the module",
                why="the run replaced it (model.classes), or trained another module",
                fix="pass a module of the trained model's shape",
            )


def _require_names(stored: dict[str, Any], state: dict[str, Any], module: Any) -> None:
    """A module may have parameters that its output ignores, and a file constants: both at once are other names."""
    there = {state[name].data_ptr() for name in stored if name in state}  # a tied weight is stored once
    parameters = [name for name, _ in module.named_parameters()]
    missing = [name for name in parameters if name not in stored and state[name].data_ptr() not in there]
    unknown = [n for n, a in stored.items() if n not in state and a.dtype.kind == "f" and a.size > 1]
    if not (missing and unknown):
        return
    raise UsageError(
        f"the trained model has no {_listed(missing)} of the module",
        why=f"it has {_listed(unknown)} instead: the exporter folded or renamed parameters, or it is another module's",
        fix=f"pass the module itself to edgetrain.fit, or export it with `{EXPORT_LINE}`",
    )


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
