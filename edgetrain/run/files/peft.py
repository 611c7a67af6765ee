"""Adapters in the layout of Hugging Face PEFT: `adapter_model.safetensors` and `adapter_config.json`.

Module names are the weights' ONNX names without `.weight`: where the exporter kept the names of the PyTorch model,
`peft.PeftModel.from_pretrained` finds its modules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.errors import DeviceError, UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.graph.adapters import Adapter
from edgetrain.run.engines.engine import Array

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
_BASE = "base_model.model."
_SAFETENSORS_DTYPES: Mapping[str, str] = {"float16": "F16", "float32": "F32", "float64": "F64"}
_ALIGNMENT = 8  # safetensors: the header ends on such a boundary


def write_peft(
    folder: Path,
    parameters: Mapping[str, Array],
    adapters: Sequence[Adapter],
    *,
    whole: Sequence[str] = (),
    base_model: str = "",
) -> None:
    """Saves the adapters, and the parameters `whole` that were trained beside them, into `folder`.

    Raises `UsageError` for a run without adapters, `DeviceError` when the disk refuses.
    """
    if not adapters:
        raise UsageError(
            "this run has no adapters to export", why="it was not trained with LoRA", fix="set update.mode = 'lora'"
        )
    tensors = {f"{_BASE}{name}": parameters[name] for name in whole}
    for adapter in adapters:
        module = f"{_BASE}{module_of(adapter.weight)}"
        tensors[f"{module}.lora_A.weight"] = parameters[adapter.down]
        tensors[f"{module}.lora_B.weight"] = parameters[adapter.up]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeviceError(f"cannot make the folder `{folder}`", why=str(error), fix="choose another") from error
    with replaced_file(folder / WEIGHTS) as file:
        file.write(to_safetensors(tensors))
    with replaced_file(folder / CONFIG) as file:
        file.write((json.dumps(_config(adapters, whole, base_model), indent=2) + "\n").encode())


def module_of(weight: str) -> str:
    """The module that owns a weight: PyTorch's name for it without the last word."""
    return weight.removesuffix(".weight")


def _config(adapters: Sequence[Adapter], whole: Sequence[str], base_model: str) -> dict[str, Any]:
    rank = max(a.rank for a in adapters)  # a small weight's own rank may be below what was asked for
    smaller = {module_of(a.weight): a.rank for a in adapters if a.rank != rank}
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base_model,
        "r": rank,
        "rank_pattern": smaller,
        "lora_alpha": adapters[0].alpha,
        "alpha_pattern": {},
        "lora_dropout": 0.0,
        "bias": "none",
        # `Linear` stores (outputs, inputs); A and B are PyTorch's whatever the ONNX weight's layout is.
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "target_modules": [module_of(a.weight) for a in adapters],
        "modules_to_save": sorted({module_of(n).removesuffix(".bias") for n in whole}) or None,
    }


def to_safetensors(tensors: Mapping[str, Array]) -> bytes:
    """The tensors in the safetensors format: the header's length, the header as JSON, the values in its order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blocks = []
    offset = 0
    for name, value in tensors.items():
        kind = np.dtype(value.dtype)
        block = np.ascontiguousarray(value, kind.newbyteorder("<")).tobytes()
        header[name] = {
            "dtype": _SAFETENSORS_DTYPES[kind.name],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + len(block)],
        }
        blocks.append(block)
        offset += len(block)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text + b"".join(blocks)
