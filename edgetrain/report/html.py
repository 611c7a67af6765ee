"""HTML that is escaped unless it says that it is HTML: names of classes and files come from strangers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape

_VOID = frozenset({"meta", "img", "link", "wbr"})
_BREAKS = re.compile(r"(?<=[_./,-])(?=\w)")


class Markup(str):
    """Text that is HTML already. Only this module's functions and literals of ours make it."""

    __slots__ = ()


Child = str | Iterable[str] | None  # a `Markup` goes in as it is, any other text is escaped
Attribute = str | int | float | bool | None


def element(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """`element("a", "text", href="#x", class_="y", aria_label="z")`. `True` is a bare attribute, `None` none."""
    opened = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    return Markup(opened) if tag in _VOID else Markup(f"{opened}{joined(*children)}</{tag}>")


def joined(*children: Child) -> Markup:
    """The children one after the other."""
    return Markup("".join(_text(child) for child in children))


def breakable(text: str) -> Markup:
    """A name of the kind `conv2d_weight_gradient`, that a narrow column may break after its signs."""
    return Markup("<wbr>".join(escape(part) for part in _BREAKS.split(text)))


def data_block(name: str, data: object) -> Markup:
    """Data for the page's script. Nothing in it can end the element that it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(f'<script type="application/json" id="{escape(name)}">{text}</script>')


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child)
    return "".join(map(_text, child))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
