"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The rows below their heads. Bars and line breaks in a cell are kept from ending it."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n"


def code(text: str) -> str:
    """The text as code; nothing where there is none."""
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    inside_code = False
    parts = []
    for part in text.replace("\n", " ").split("`"):
        # Python-Markdown does not split a row within code, and would show the backslash.
        parts.append(part if inside_code else part.replace("|", "\\|"))
        inside_code = not inside_code
    return "`".join(parts)
