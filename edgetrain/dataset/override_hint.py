"""Overrides as messages have them, to be pasted into a shell: `data.missing=mean`, `'data.resize=[32,32]'`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from edgetrain.recipes import parse_scalar


def override_hint(key: str, value: str | int | float | Sequence[int | str]) -> str:
    """`key=value` between backticks, which say that it can be pasted; quoted where a shell would read something else.

    A text that looks like a number stays a text.
    """
    if isinstance(value, str):
        text = value if value and parse_scalar(value) == value else json.dumps(value, ensure_ascii=False)
    elif isinstance(value, int | float):
        text = f"{value}"
    else:
        text = "[" + ",".join(json.dumps(item, ensure_ascii=False) for item in value) + "]"
    return f"`{shlex.quote(f'{key}={text}')}`"
