"""Pictures and text as one web page that needs nothing else: no scripts, no other files."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from edgetrain.drawing.scene import Scene, to_svg

_STYLE = (
    "body{font-family:sans-serif;max-width:980px;margin:2em auto;color:#222;padding:0 1em}"
    "svg{max-width:100%;height:auto}polygon[fill-opacity='0']:hover{fill-opacity:.12}"
    "pre{background:#f5f6f8;padding:1em;overflow-x:auto;line-height:1.35}"
)


def to_html(title: str, scenes: Sequence[Scene], text: str) -> str:
    """The pictures, with what to read about each part where the reader points, and below them the text."""
    return "\n".join(
        (
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"/><title>{escape(title)}</title>',
            f"<style>{_STYLE}</style></head><body>",
            *map(to_svg, scenes),
            f"<pre>{escape(text)}</pre>",
            "</body></html>\n",
        )
    )
