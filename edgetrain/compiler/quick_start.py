"""The compiler's process loads TVM quickly: without PyTorch, and without looking for garbage where there is none."""

from __future__ import annotations

import gc
import sys

# Objects made before Python looks for garbage, instead of 700. TVM and what we build on it are
# 170,000 that stay: looking through them again and again took a sixth of the time of loading. Kernels leave little
# behind: the process takes as much memory as before.
_OBJECTS = 100_000


def do_without_torch() -> None:
    """From here on PyTorch counts as not installed: TVM would load it wherever it is, and nothing here needs it.

    Loading takes one second then instead of three.
    """
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's way to say that an import fails


def collect_rarely() -> None:
    """From here on Python looks for garbage seldom."""
    gc.set_threshold(_OBJECTS, 20, 100)
