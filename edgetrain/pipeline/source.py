"""Turns what a user names to train, a recipe or a model, into a recipe. The CLI and Python both use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgetrain.errors import ModelError
from edgetrain.files.regular_file import require_regular
from edgetrain.recipes import Recipe, load_recipe, recipe_for_model

_ZOO = "zoo:"
_RECIPE_FILE = ".toml"


def is_model(source: str) -> bool:
    """Whether it names a model: `zoo:NAME`, a path that ends in .onnx, or any file that is no recipe."""
    path = Path(source)
    return source.startswith(_ZOO) or source.endswith(".onnx") or (path.is_file() and path.suffix != _RECIPE_FILE)


def recipe_of(source: str, overrides: Sequence[str], *, needs_data: bool) -> Recipe:
    """The recipe of that name or file, or one made of defaults for a model.

    Raises `ModelError` for a model file that is not there, and as `load_recipe` does.
    """
    if not is_model(source):
        return load_recipe(source, overrides)
    path = Path(source)
    require_regular(path, ModelError)
    if not source.startswith(_ZOO) and not path.is_file():
        raise ModelError(
            f"no model file at `{path}`",
            why="the path is a directory" if path.is_dir() else "nothing is there",
            fix="give the path of an .onnx file, or a recipe name (`edgetrain recipes` lists them)",
        )
    return recipe_for_model(source, overrides, needs_data=needs_data)
