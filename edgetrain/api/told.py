"""What a Python program is told beside its results."""

from __future__ import annotations

import warnings


def warn(line: str) -> None:
    """What changes how the result is to be read, told where Python programs look for it."""
    warnings.warn(line, stacklevel=2)
