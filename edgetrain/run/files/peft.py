"""Adapters in the layout of Hugging Face PEFT: `adapter_model.safetensors` and `adapter_config.json`.

Module names are the weights' ONNX names without `.weight`: where the exporter kept the names of the PyTorch model,
`peft.PeftModel.from_pretrained` finds its modules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgetrain.errors import DeviceError, UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.build_cache import file_sha256
from edgetrain.files.safetensors_file import write_safetensors
from edgetrain.files.texts import parse_json
from edgetrain.graph.adapters import Adapter
from edgetrain.model.tensor_names import onnx_name
from edgetrain.run.engines.engine import Array
from edgetrain_tuner import disk

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
MANIFEST = "edgetrain.json"  # the hashes of both, by which the next export knows them
_FORMAT = "edgetrain.peft/1"
_BASE = "base_model.model."


def write_peft(
    folder: Path,
    parameters: Mapping[str, Array],
    adapters: Sequence[Adapter],
    *,
    whole: Sequence[str] = (),
    base_model: str = "",
) -> None:
    """Saves the adapters, and the parameters `whole` that were trained beside them, into `folder`.

    Raises `UsageError` for a run without adapters and where the folder holds an adapter of somebody else,
    `DeviceError` when the disk refuses.
    """
    if not adapters:
        raise UsageError(
            "this run has no adapters to export", why="it was not trained with LoRA", fix="set `update.mode=lora`"
        )
    _require_ours(folder)
    tensors = {f"{_BASE}{onnx_name(name)}": parameters[name] for name in whole}
    for adapter in adapters:
        module = f"{_BASE}{module_of(adapter.weight)}"
        tensors[f"{module}.lora_A.weight"] = parameters[adapter.down]
        tensors[f"{module}.lora_B.weight"] = parameters[adapter.up]
    try:
        disk.make_folders(folder)
    except OSError as error:
        raise DeviceError(f"cannot make the folder `{folder}`", why=str(error), fix="choose another") from error
    write_safetensors(folder / WEIGHTS, tensors)
    with replaced_file(folder / CONFIG, is_shared=True) as file:
        file.write((json.dumps(_config(adapters, whole, base_model), indent=2) + "\n").encode())
    _write_manifest(folder)


def _require_ours(folder: Path) -> None:
    """An adapter that another program trained, or trained on, is worth as much as ours."""
    try:
        hashes = parse_json((folder / MANIFEST).read_bytes())["files"]
        ours = {name: str(hashes[name]) for name in (WEIGHTS, CONFIG)}
    except (OSError, ValueError, KeyError, TypeError):
        ours = {}
    for name in (WEIGHTS, CONFIG):
        if (folder / name).exists() and file_sha256(folder / name) != ours.get(name):
            raise UsageError(
                f"`{folder / name}` is not a file that edgetrain wrote, or was changed since",
                why="the adapters would replace it",
                fix="choose another folder with --peft",
            )


def _write_manifest(folder: Path) -> None:
    hashes = {name: file_sha256(folder / name) for name in (WEIGHTS, CONFIG)}
    with replaced_file(folder / MANIFEST, is_shared=True) as file:
        file.write((json.dumps({"format": _FORMAT, "files": hashes}, indent=1) + "\n").encode())


def module_of(weight: str) -> str:
    """The module that owns a weight: PyTorch's name for it without the last word."""
    return onnx_name(weight).removesuffix(".weight")


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
