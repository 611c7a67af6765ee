"""The Markdown of a repository as Python-Markdown reads it: it nests lists by four spaces, and keeps `\\|` in code."""

from __future__ import annotations

import re

from website.links import outside_fences

_NESTED_ITEM = re.compile(r"^ {2,3}(?=([-*]|\d+\.) )", re.MULTILINE)
_ITEM_AFTER_TEXT = re.compile(r"^((?![-*#|<>\s]|\d+\. ).+\n)(?=([-*]|\d+\.) )", re.MULTILINE)
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")


def for_the_site(markdown: str) -> str:
    """The same text, with nested lists indented by four spaces, a blank line before lists, and plain bars in code."""

    def change(part: str) -> str:
        part = _NESTED_ITEM.sub("    ", part)
        part = _ITEM_AFTER_TEXT.sub(r"\1\n", part)
        return _ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), part)

    return outside_fences(markdown, change)
