"""`edgetrain recipes`: what can be trained without writing anything."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from edgetrain.cli.command import Verb, table
from edgetrain.cli.console import Console
from edgetrain.recipes import Recipe, list_recipes, load_recipe, recipe_header


def run(arguments: argparse.Namespace, console: Console) -> int:
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
    summary="list the recipes, or show one with every value",
    description="Lists the recipes that come with edgetrain. With a NAME, or a .toml file: its header and every value, "
    "each written as an override could set it.",
    words="[NAME] [key=value ...]",
    examples=("edgetrain recipes", "edgetrain recipes digits", "edgetrain recipes digits train.batch=4 --json"),
    run=run,
)
