"""JSON and TOML from files that anybody may have written: whatever is wrong with them is a `ValueError`."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

_TOO_DEEP = "it is nested too deep"


def parse_json(text: str | bytes) -> Any:
    """The value. Raises `ValueError`, also for nesting that Python cannot read and numbers of thousands of digits."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parse_toml(text: str) -> dict[str, Any]:
    """The table. Raises `ValueError`, as `parse_json` does."""
    try:
        table = tomllib.loads(text)
        repr(table)  # a hexadecimal number may have more digits than Python shows, and then no message could name it
        return table
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def read_regular(path: Path, *, most_bytes: int) -> bytes:
    """What a regular file holds: no pipe that waits for ever, no link. Raises `OSError`, and `ValueError` for more."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is longer than {most_bytes} bytes")
    return content
