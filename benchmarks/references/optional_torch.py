"""PyTorch, or None where it is not installed: the tests skip without it and name the command that installs it."""

from __future__ import annotations

from typing import Any

try:
    import torch
except ImportError:
    torch = None

__all__ = ["INSTALL", "IS_MISSING", "F", "Tensor", "set_threads", "torch"]

INSTALL = "pip install torch==2.13.0"
IS_MISSING = torch is None

F: Any = None if IS_MISSING else torch.nn.functional  # the name everybody knows
Tensor = Any  # torch.Tensor: torch is not there when types are checked


def set_threads(count: int) -> None:
    """How many threads torch's kernels use from now on, in this process."""
    torch.set_num_threads(count)
