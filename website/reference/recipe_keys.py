"""Every recipe key with type, default, range and what it means: from the dataclasses of recipes and their comments."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgetrain.recipes import Recipe
from edgetrain.schema import Limits
from website.reference.table import code, table

_INTRODUCTION = """\
# Recipe keys

Every key of a recipe, written from the code. Write `train.batch=4` on the command line, `train_batch=4` in Python, and
`batch = 4` below `[train]` in a recipe file. What a recipe is, and which data formats there are: [recipes and
data](../recipes.md).
"""
_HEADS = ("key", "default", "meaning")
_KINDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    tuple[str, ...]: "list of texts",
    tuple[int, ...]: "list of whole numbers",
    tuple[float, ...]: "list of numbers",
    Mapping[str, tuple[int, ...]]: "table of shapes",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table of a recipe: its name, as `data.audio`, and its dataclass."""

    name: str
    kind: type


def page() -> str:
    """A table for the keys above all sections, then one for each section."""
    parts = [_INTRODUCTION, "## Above all sections\n", _table(Section(name="", kind=Recipe))]
    for section in sections(Recipe):
        about = _about(section.kind)
        parts += [f"## `{section.name}`\n", *([about + "\n"] if about else []), _table(section)]
    return "\n".join(parts)


def sections(kind: type, above: str = "") -> Iterator[Section]:
    """The tables within a recipe, at any depth, each before those within it."""
    for name, hint in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            yield Section(name=above + name, kind=typing.cast(type, hint))
            yield from sections(typing.cast(type, hint), f"{above}{name}.")


def keys(section: Section) -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
    """Name, type and field of each key of the section itself; a recipe's name is its file's, and no key."""
    hints = typing.get_type_hints(section.kind)
    for field in dataclasses.fields(section.kind):
        if not dataclasses.is_dataclass(hints[field.name]) and not (section.kind is Recipe and field.name == "name"):
            yield f"{section.name}.{field.name}".removeprefix("."), hints[field.name], field


def _table(section: Section) -> str:
    meanings = comments(inspect.getsource(section.kind))
    rows = (
        (code(name), _default(field), _meaning(_kind(hint), _allowed(field), meanings.get(field.name, "")))
        for name, hint, field in keys(section)
    )
    return table(_HEADS, rows)


def _meaning(kind: str, allowed: str, meaning: str) -> str:
    """What is meant, then what can be written."""
    return ". ".join(filter(None, (meaning, f"*{kind[:1].upper()}{kind[1:]}{f': {allowed}' if allowed else ''}*")))


def _about(kind: type) -> str:
    """The docstring, unless it is what `dataclass` writes by itself."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else text


def comments(source: str) -> Mapping[str, str]:
    """What a class says of each field: the comment behind it, else the comment lines above it."""
    lines = inspect.cleandoc(source).splitlines() if source[:1].isspace() else source.splitlines()
    (definition,) = ast.parse("\n".join(lines)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno is not None:
            behind = lines[node.end_lineno - 1].encode()[node.end_col_offset or 0 :].decode()
            text = _without_mark(behind) or " ".join(_above(lines, node.lineno - 1))
            # `frozen: …` begins with a value, which is written as it is.
            found[node.target.id] = text if re.match(r"\w+:", text) else text[:1].upper() + text[1:]
    return found


def _above(lines: Sequence[str], at: int) -> list[str]:
    first = at
    while first > 0 and lines[first - 1].strip().startswith("#"):
        first -= 1
    return [_without_mark(line) for line in lines[first:at]]


def _without_mark(line: str) -> str:
    text = line.strip()
    return re.sub(r"^#\s*", "", text) if text.startswith("#") and not text.startswith("# noqa") else ""


def _kind(hint: Any) -> str:
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return " or ".join(_KINDS[part] for part in parts if part is not type(None))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    return "none" if value is None else code(json.dumps(value))


def _allowed(field: dataclasses.Field[Any]) -> str:
    limits: Limits = field.metadata.get("limits", Limits())
    bounds = (
        (limits.minimum, "{:g} or more"),
        (limits.above, "more than {:g}"),
        (limits.maximum, "{:g} or less"),
        (limits.below, "less than {:g}"),
        (limits.length, "{:g} values"),
    )
    words = [text.format(bound) for bound, text in bounds if bound is not None]
    return ", ".join([*words, *map(code, limits.choices)])
