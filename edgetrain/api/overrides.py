"""Values of a recipe as keyword arguments: `train_epochs=3` for `train.epochs`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgetrain.errors import UsageError
from edgetrain.recipes import dotted_key
from edgetrain.schema import close_to

_SECTIONS = ("model", "data", "train", "update", "security")


def override_texts(overrides: Mapping[str, object]) -> tuple[str, ...]:
    """Keyword arguments as the command line writes them. Raises `UsageError` naming every one that is no recipe key."""
    texts, unknown = [], []
    for name, value in overrides.items():
        section, _, key = name.partition("_")
        if section in _SECTIONS and key:
            texts.append(f"{dotted_key(section, key)}={toml_text(value)}")
        elif name in ("metric", "expect"):
            texts.append(f"{name}={toml_text(value)}")
        else:
            unknown.append(f"`{name}`{close_to(name, _known_overrides())}")
    if unknown:
        raise UsageError(
            f"no such argument: {', '.join(unknown)}",
            why="values of the recipe are named section_key, like train_epochs for train.epochs",
            fix=f"begin with one of {', '.join(f'{section}_' for section in _SECTIONS)}",
        )
    return tuple(texts)


def _known_overrides() -> tuple[str, ...]:
    return (
        "train_epochs",
        "train_batch",
        "train_learning_rate",
        "train_loss",
        "model_classes",
        "update_mode",
        "metric",
    )


def toml_text(value: object) -> str:
    """A value as TOML writes it."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case str() | Path():
            escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        case Mapping():
            return "{ " + ", ".join(f"{toml_text(str(k))} = {toml_text(v)}" for k, v in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(toml_text, value)) + "]"
    return repr(value)
