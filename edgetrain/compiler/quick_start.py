"""Hides PyTorch from a process before it loads TVM, so that loading takes one second instead of three."""

from __future__ import annotations

import sys


def do_without_torch() -> None:
    """From here on PyTorch counts as not installed: TVM would load it wherever it is, and nothing here needs it."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's way to say that an import fails
