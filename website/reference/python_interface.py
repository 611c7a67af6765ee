"""The Python interface: every public name with its signature and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import edgetrain

_INTRODUCTION = """\
# Python interface

All names that `import edgetrain` gives you, written from the code. Values of the recipe are keyword arguments, such as
`train_epochs=3` for `train.epochs`: the [recipe keys](recipe-keys.md) list them all.
"""
_WIDTH = 88
_STARS: Mapping[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_ARGUMENT = re.compile(r"(?:^|(?<=[.;] ))(?=`\w+`: )")


def page() -> str:
    """Functions first, then classes with their public members, each in alphabetical order."""
    public = {name: getattr(edgetrain, name) for name in sorted(edgetrain.__all__)}
    functions = [_function(name, value) for name, value in public.items() if not inspect.isclass(value)]
    classes = [_class(name, value) for name, value in public.items() if inspect.isclass(value)]
    return "\n".join((_INTRODUCTION, *functions, *classes))


def _function(name: str, value: Any) -> str:
    return f"## {name}\n\n```python\n{signature(f'edgetrain.{name}', value)}\n```\n\n{docstring(value)}\n"


def _class(name: str, kind: type) -> str:
    parts = [f"## {name}", docstring(kind)]
    for member, value in members(kind):
        if isinstance(value, property):
            parts.append(f"### `{name}.{member}`\n\n{docstring(value)}")
        else:
            call = f"```python\n{signature(f'{name}.{member}', value)}\n```"
            parts.append(f"### `{name}.{member}`\n\n{call}\n\n{docstring(value)}")
    return "\n\n".join(part for part in parts if part) + "\n"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class defines for its users: public properties and methods that say what they do, in their order."""
    for name, value in vars(kind).items():
        inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if not name.startswith("_") and (isinstance(inner, property) or inspect.isfunction(inner)) and inner.__doc__:
            yield name, inner


def docstring(value: Any) -> str:
    """The docstring as Markdown, which it almost is: a paragraph on arguments becomes a list of them."""
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    if inspect.isclass(value) and text.startswith(f"{value.__name__}("):
        return ""  # what `dataclass` writes by itself
    return "\n\n".join(map(_listed, text.split("\n\n")))


def _listed(paragraph: str) -> str:
    flat = " ".join(paragraph.split())
    arguments = _ARGUMENT.split(flat)
    if len(arguments) < 2 or not re.match(r"`\w+`: ", flat):
        return paragraph
    return "\n".join(f"- {argument.strip()}" for argument in arguments if argument.strip())


def signature(name: str, value: Any) -> str:
    """The call as it is written in the source, a line for each argument where it is long."""
    found = inspect.signature(value)
    parameters = [p for p in found.parameters.values() if p.name != "self"]
    result = "" if found.return_annotation is found.empty else f" -> {found.return_annotation}"
    shown: list[str] = []
    for number, parameter in enumerate(parameters):
        before = parameters[number - 1].kind if number else None
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            shown.append("*")
        shown.append(_parameter(parameter))
    one_line = f"{name}({', '.join(shown)}){result}"
    if len(one_line) <= _WIDTH:
        return one_line
    return f"{name}(\n" + "".join(f"    {line},\n" for line in shown) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    """Annotations are texts in the source, and are shown as they are written there."""
    stars = _STARS.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}{kind}{default}"
