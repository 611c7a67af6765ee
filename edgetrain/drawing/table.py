"""A table of names and texts as a piece of HTML, which notebooks show below a cell."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def to_html_table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Everything is escaped; colours are the page's own, so that it reads in dark notebooks too."""
    lines = "".join(
        f'<tr><th style="{_CELL};white-space:nowrap">{escape(name)}</th><td style="{_CELL}">{escape(text)}</td></tr>'
        for name, text in rows
    )
    title = f'<caption style="text-align:left;font-weight:bold;padding:2px 0">{escape(caption)}</caption>'
    return f"<table>{title}<tbody>{lines}</tbody></table>"
