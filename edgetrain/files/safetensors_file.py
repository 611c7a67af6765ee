"""Tensors by name in a safetensors file, read and written by the format's own library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.errors import ModelError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.regular_file import require_regular

Array = np.ndarray[Any, np.dtype[Any]]

_METADATA = {"format": "pt"}  # PyTorch's readers ask for it


def read_safetensors(path: Path) -> dict[str, Array]:
    """The tensors by name. Raises `ModelError` for another format, a file cut short, or a type NumPy lacks."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    require_regular(path, ModelError)
    try:
        tensors: dict[str, Array] = load_file(path)
        return tensors
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path} is not a safetensors file that can be read",
            why=str(error) or type(error).__name__,
            fix="install the package again, or export the model to ONNX and use that file",
        ) from error


def write_safetensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Writes the file whole or not at all; equal tensors give equal bytes. Raises `DeviceError` if the disk refuses."""
    from safetensors.numpy import save

    # The library writes memory as it lies, so that a transposed view would be written as what it is a view of.
    plain = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in tensors.items()}
    with replaced_file(path, is_shared=True) as file:
        file.write(save(plain, metadata=_METADATA))
