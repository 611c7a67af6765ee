"""`edgetrain recipes`: what can be trained without writing anything."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgetrain.cli.command import Verb, table
from edgetrain.cli.console import Console
from edgetrain.errors import UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.recipe_files import find_recipe
from edgetrain.recipes import Recipe, list_recipes, load_recipe, recipe_header

_COPY_EXAMPLE = "edgetrain recipes copy digits mine.toml"
_VALIDATE_EXAMPLE = "edgetrain recipes validate mine.toml"


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.words[:1] in (["copy"], ["validate"]):
        action, *words = arguments.words
        return (_copy if action == "copy" else _validate)(words, console)
    if arguments.words:
        name, *overrides = arguments.words
        recipe = load_recipe(name, overrides)
        console.data(recipe.to_json() if console.as_json else recipe_header(name) + "\n" + show(recipe))
        return 0
    summaries = {name: summary(name) for name in list_recipes()}
    if console.as_json:
        console.data(json.dumps(summaries, indent=1) + "\n")
    else:
        console.data(table(list(summaries.items()), indent=0) + "\n")
    return 0


def _copy(words: list[str], console: Console) -> int:
    """Writes the recipe as it stands, its header included: what a person wants to change."""
    if not 1 <= len(words) <= 2:
        raise UsageError("`edgetrain recipes copy` needs NAME, and perhaps FILE", fix=f"like `{_COPY_EXAMPLE}`")
    source = find_recipe(words[0])
    target = Path(words[1] if len(words) == 2 else source.name)
    if target.is_dir():
        target /= source.name
    if target.suffix != source.suffix:
        raise UsageError(f"`{target}` does not end in {source.suffix}, as a recipe's file does", fix="name it so")
    if os.path.lexists(target):
        raise UsageError(f"`{target}` is there already", fix="name another file, or remove it first")
    text = source.read_bytes()
    with replaced_file(target, is_shared=True) as file:
        file.write(text)
    told = json.dumps({"file": str(target)}) if console.as_json else f"copied {words[0]} to {target}"
    console.data(told + "\n")
    console.say(f"hint: change it, and train with `edgetrain fit {shlex.quote(str(target))}`")
    return 0


def _validate(words: list[str], console: Console) -> int:
    """Loads it as `fit` would; every mistake is told at once. Whether model and data are there is not looked at."""
    if not words:
        raise UsageError("`edgetrain recipes validate` needs NAME or FILE", fix=f"like `{_VALIDATE_EXAMPLE}`")
    name, *overrides = words
    recipe = load_recipe(name, overrides)
    console.data(recipe.to_json() if console.as_json else f"{name} is a valid recipe\n")
    return 0


def summary(name: str) -> str:
    """The first line of the recipe's header, without its name."""
    return recipe_header(name).splitlines()[0].removeprefix(f"{name}:").strip()


def show(recipe: Recipe) -> str:
    """Every value, as an override would write it."""
    return "\n".join(f"{key}={_plain(value)}" for key, value in _values(dataclasses.asdict(recipe))) + "\n"


def _values(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _values(value, f"{prefix}{key}.")
        elif prefix + key != "name":
            yield prefix + key, value


def _plain(value: object) -> str:
    match value:
        case None:
            return "none"
        case str():
            return value
        case tuple():
            return json.dumps(list(value))
    return json.dumps(value)


VERB = Verb(
    name="recipes",
    summary="list the recipes, or show, copy or validate one",
    description="Lists the recipes that come with edgetrain. With a NAME, or a .toml file: its header and every value, "
    "each written as an override could set it. `copy NAME [FILE]` writes a recipe to a file of your own, "
    "`validate FILE` tells every mistake in one.",
    words="[NAME | copy NAME [FILE] | validate FILE] [key=value ...]",
    examples=(
        "edgetrain recipes",
        "edgetrain recipes digits",
        "edgetrain recipes digits train.batch=4 --json",
        _COPY_EXAMPLE,
        _VALIDATE_EXAMPLE,
    ),
    run=run,
)
