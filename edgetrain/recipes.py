"""Recipes: what to train, on which data, how, and what to expect. Data only, read from TOML.

A recipe is five tables (`model`, `data`, `train`, `update`, and the top-level `metric` and `expect`). The dataclasses
here are the reference of every key: type, default and range.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.errors import UsageError
from edgetrain.locate import data_path
from edgetrain.schema import close_to, read_table, setting

FORMAT = "edgetrain.recipe/1"

LOSSES = ("cross-entropy", "bce", "mse", "l1")
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "linear", "step")
UPDATE_MODES = ("full", "head", "bias", "names")
METRICS = ("accuracy", "mse", "mae")
_METRIC_OF_LOSS: Mapping[str, str] = {"mse": "mse", "l1": "mae"}
DATA_FORMATS = ("auto", "npz", "idx", "csv", "images")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    source: str = setting()  # a .onnx file, or `zoo:` and a name
    classes: int | None = setting(None, minimum=2)  # a new head with this many outputs; None keeps the model's own
    batchnorm: str = setting("train", choices=("train", "frozen"))  # frozen: running statistics, not the batch's
    inputs: Mapping[str, tuple[int, ...]] = setting({})  # shapes without the batch, where the model leaves them open


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSection:
    source: str = setting()  # a file or folder, `bundled:digits`, or `debian:fashion-mnist`
    format: str = setting("auto", choices=DATA_FORMATS)
    label: str = setting("")  # the label's column in a CSV file; empty: the column named `label`
    limit: int | None = setting(None, minimum=1)  # use at most this many training samples
    test_limit: int | None = setting(None, minimum=1)  # use at most this many samples of the test part
    validation: float = setting(0.1, minimum=0, below=1)  # share of the training samples held out
    mean: tuple[float, ...] = setting(())  # per channel, after uint8 became 0..1; empty: 0
    std: tuple[float, ...] = setting((), above=0)  # per channel; empty: 1
    resize: tuple[int, ...] = setting((), minimum=1, length=2)  # height, width; empty: as stored
    interpolation: str = setting("bilinear", choices=("bilinear", "nearest"))
    channels: int | None = setting(None, minimum=1)  # repeat a grey image this often; None: as stored


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSection:
    loss: str = setting("cross-entropy", choices=LOSSES)
    batch: int = setting(32, minimum=1)
    epochs: int = setting(10, minimum=1)
    steps: int | None = setting(None, minimum=1)  # stop after this many steps, whatever `epochs` says
    accumulate: int = setting(1, minimum=1)  # batches whose gradients are summed before one update
    optimizer: str = setting("sgd", choices=OPTIMIZERS)
    learning_rate: float = setting(0.01, above=0)
    momentum: float = setting(0.9, minimum=0, below=1)  # sgd
    weight_decay: float = setting(0.0, minimum=0)
    beta1: float = setting(0.9, minimum=0, below=1)  # adam, adamw
    beta2: float = setting(0.999, minimum=0, below=1)  # adam, adamw
    epsilon: float = setting(1e-8, above=0)  # adam, adamw
    schedule: str = setting("constant", choices=SCHEDULES)
    warmup_steps: int = setting(0, minimum=0)  # linear from 0, before `schedule` begins
    step_every: int = setting(0, minimum=0)  # schedule = "step": multiply by `step_gamma` each so many steps
    step_gamma: float = setting(0.1, above=0, maximum=1)
    clip_norm: float = setting(0.0, minimum=0)  # largest norm of the whole gradient; 0: off
    seed: int = setting(0, minimum=0)
    patience: int = setting(0, minimum=0)  # epochs without a better metric before stopping; 0: off
    checkpoint_every: int = setting(0, minimum=0)  # steps; 0: after each epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSection:
    mode: str = setting("full", choices=UPDATE_MODES)
    names: tuple[str, ...] = setting(())  # mode = "names": globs over parameter names


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A checked recipe: every value is of its type, in range, and consistent with the others."""

    name: str = setting()
    model: ModelSection
    data: DataSection
    train: TrainSection
    update: UpdateSection
    metric: str = setting("accuracy", choices=METRICS)
    expect: float | None = setting(None)  # what the metric reaches, as the header documents

    def to_json(self) -> str:
        """Canonical text: equal recipes give equal bytes."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, overrides: Sequence[str] = ()) -> Recipe:
        """The inverse of `to_json`, overrides applied. Raises `UsageError` for another format or a broken recipe."""
        data: dict[str, Any] = json.loads(text)
        found = data.pop("format", None)
        if found != FORMAT:
            raise UsageError(f"recipe has format `{found}`, this version reads `{FORMAT}`")
        return _overridden(data, overrides, where="the stored recipe")


_SECTIONS: Mapping[str, type] = {
    "model": ModelSection,
    "data": DataSection,
    "train": TrainSection,
    "update": UpdateSection,
}


def list_recipes() -> tuple[str, ...]:
    """The names of the recipes that come with edgetrain, sorted."""
    return tuple(sorted(path.stem for path in data_path("recipes").glob("*.toml")))


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name, or in that file, with `section.key=value` overrides applied in order.

    Relative paths inside a recipe file count from the file's folder, in overrides from the working directory.
    Raises one `UsageError` that lists every mistake of the file and of the overrides.
    """
    path = find_recipe(name_or_path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"recipe {path} is not valid TOML", why=str(error)) from error
    _resolve_paths(data, path.parent)
    data.setdefault("name", path.stem)
    return _overridden(data, overrides, where=f"recipe {path}")


def recipe_for_model(source: str, overrides: Sequence[str] = (), *, needs_data: bool = True) -> Recipe:
    """A recipe made of the defaults for a model of the user's own: a path, or `zoo:NAME`.

    The metric follows the loss where no override names it. Without `needs_data`, `data.source` may be missing.
    Raises `UsageError` as `load_recipe` does.
    """
    name = Path(source.removeprefix("zoo:")).stem or "model"
    data: dict[str, Any] = {"name": name, "model": {"source": source}}
    given = {text.partition("=")[0].strip() for text in overrides}
    losses = [text.partition("=")[2].strip().strip("\"'") for text in overrides if text.startswith("train.loss=")]
    if losses:
        data["metric"] = _METRIC_OF_LOSS.get(losses[-1], "accuracy")
    if "data.source" not in given:
        if needs_data:
            raise UsageError(
                f"`{source}` needs data to train on",
                why="a model file brings none along",
                fix=f"add data.source=PATH: `edgetrain fit {source} data.source=data.npz`",
            )
        data["data"] = {"source": ""}
    return _overridden(data, overrides, where=f"the recipe for {source}")


def recipe_header(name_or_path: str | Path) -> str:
    """The comment block at the top of the recipe: what it needs, how to launch it, what to expect."""
    lines = []
    for line in find_recipe(name_or_path).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(lines).strip() + "\n"


def find_recipe(name_or_path: str | Path) -> Path:
    """The recipe's file. A text with a `/` or that ends in `.toml` is a path, anything else a name."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(".toml"):
        if not Path(text).is_file():
            raise UsageError(
                f"there is no recipe file {text}", fix="check the path, or use a name from `edgetrain recipes`"
            )
        return Path(text)
    known = list_recipes()
    if text not in known:
        raise UsageError(
            f"there is no recipe `{text}`{close_to(text, known)}",
            why=f"the recipes are {', '.join(known)}",
            fix="use one of them, or the path of a .toml file",
        )
    return data_path("recipes", f"{text}.toml")


def parse_scalar(text: str) -> object:
    """A value of an override: a TOML scalar or list where it is one, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _overridden(data: dict[str, Any], overrides: Sequence[str], *, where: str) -> Recipe:
    mistakes: list[str] = []
    for text in overrides:
        _apply_override(data, text, mistakes)
    return _read_recipe(data, where=where, mistakes=mistakes)


def _apply_override(data: dict[str, Any], text: str, mistakes: list[str]) -> None:
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        mistakes.append(f"`{text}` is not an override: write `section.key=value`, like `train.batch=4`")
        return
    table = data
    for part in parts[:-1]:
        below = table.setdefault(part, {})
        if not isinstance(below, dict):
            mistakes.append(f"`{text}`: `{part}` is a value, not a table")
            return
        table = below
    table[parts[-1]] = parse_scalar(value.strip())


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    for section in ("model", "data"):
        table = data.get(section)
        source = table.get("source") if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(source, str) and source and ":" not in source:
            table["source"] = str(folder / Path(source).expanduser())


def _read_recipe(data: Mapping[str, Any], *, where: str, mistakes: list[str]) -> Recipe:
    """Checks everything, then raises once. `mistakes` are those already found."""
    sections: dict[str, Any] = {}
    for name, kind in _SECTIONS.items():
        table = data.get(name, {})
        sections[name] = None
        if isinstance(table, Mapping):
            sections[name] = read_table(kind, table, where=f"{name}.", mistakes=mistakes)
        else:
            mistakes.append(f"`{name}` is `{table}`, expected a table: write `[{name}]`")
    recipe = read_table(Recipe, data, where="", mistakes=mistakes, given=sections)
    if recipe is not None and not mistakes:
        mistakes.extend(_contradictions(recipe))
    if mistakes or recipe is None:
        count = "one mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise UsageError(
            f"{where} has {count}:\n" + "\n".join(f"  - {mistake}" for mistake in mistakes),
            fix="correct the file or the overrides; `edgetrain recipes NAME` prints a working example",
        )
    return recipe


def _contradictions(recipe: Recipe) -> list[str]:
    """Values that are fine alone and make no sense together."""
    data, train, update = recipe.data, recipe.train, recipe.update
    is_classifier = train.loss in ("cross-entropy", "bce")
    rules: tuple[tuple[bool, str], ...] = (
        (update.mode == "names" and not update.names, "`update.mode` is `names` and `update.names` is empty"),
        (update.mode != "names" and bool(update.names), f"`update.names` is set and `update.mode` is `{update.mode}`"),
        (train.schedule == "step" and train.step_every == 0, "`train.schedule` is `step` and `train.step_every` is 0"),
        (
            is_classifier != (recipe.metric == "accuracy"),
            f"`metric` is `{recipe.metric}` and `train.loss` is `{train.loss}`: use "
            + ("`accuracy`" if is_classifier else "`mse` or `mae`"),
        ),
        (
            bool(data.mean) and bool(data.std) and len(data.mean) != len(data.std),
            f"`data.mean` has {len(data.mean)} values and `data.std` {len(data.std)}",
        ),
    )
    return [mistake for broken, mistake in rules if broken]
