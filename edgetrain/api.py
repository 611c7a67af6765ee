"""The Python interface: `edgetrain.fit` and `edgetrain.plan`.

Values of the recipe are keyword arguments named `section_key`: `train_epochs=3` is `train.epochs=3` on the command
line, `model_classes=5` is `model.classes=5`, `metric="mse"` is `metric=mse`.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset, Samples, from_arrays, from_batches
from edgetrain.errors import DataError, UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.pipeline.advice import plan_or_advise
from edgetrain.pipeline.fit import fit as fit_job
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.resolve import resolve_without_data
from edgetrain.pipeline.source import is_model, recipe_of
from edgetrain.pipeline.stages import compile_job
from edgetrain.planner.explain import Explanation
from edgetrain.planner.explain import explain as explain_plan
from edgetrain.planner.plan import Budget
from edgetrain.recipes import Recipe
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.folders import JobKeeper, JobRecord, next_folder, require_free
from edgetrain.run.files.report import RunReport
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import open_run, predict
from edgetrain.run.limits.broker import Share
from edgetrain.run.loop.callbacks import Callback
from edgetrain.schema import close_to
from edgetrain.targets.profile import HOST, load_target
from edgetrain.units import Bytes, parse_bytes

_SECTIONS = ("model", "data", "train", "update")
_ORIGINAL = ".original"  # a model that was in memory, kept beside its run
_IN_MEMORY = "python:arrays"
_TRAIN_KEYS, _TEST_KEYS = ("x_train", "y_train"), ("x_test", "y_test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run. Its folder can be opened again with `edgetrain eval`, `export` and `fit --resume`."""

    report: RunReport
    folder: Path

    @property
    def losses(self) -> tuple[float, ...]:
        """One for each step."""
        return self.report.losses

    @property
    def metrics(self) -> Mapping[str, float]:
        """On the test part of the data, by name; on the validation part where there is no test part."""
        return self.report.test

    @property
    def model_path(self) -> Path:
        """The trained model as ONNX."""
        return RunFolder(self.folder).model

    def predict(self, features: Samples) -> Array:
        """The trained model's output for each sample: logits for a classifier. Samples are converted as in training."""
        return predict(open_run(self.folder), features, threads=self.report.threads)


def fit(
    model: Any,
    data: Any = None,
    *,
    target: str = HOST,
    budget: str | int | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    threads: int | None = None,
    resume: bool = False,
    adapt: bool = False,
    share: str | None = None,
    **overrides: object,
) -> Run:
    """Trains `model` on `data` inside `budget` and returns the finished run.

    `model`: the path of an ONNX file, the name or path of a recipe, `zoo:NAME`, or an `onnx.ModelProto`.
    `data`: arrays `(x, y)`; a mapping with `x_train`, `y_train` and perhaps `x_test`, `y_test`; a path; an iterable
    of `(x, y)` batches; a `Dataset`. A recipe brings its own where it is None.
    `budget`: bytes, or a size such as `"64MB"`. `out`: the run folder; without it the first free of `runs/NAME`.
    `adapt`: switch to a smaller plan while this machine is short of memory. `share`: `"desk=2GB"` shares this much
    with the other jobs that name it. `overrides`: values of the recipe, `train_epochs=3` for `train.epochs`.

    Raises the `EdgetrainError` that the command line would print.
    """
    profile = load_target(target)
    if not _is_named(model):
        folder = Path(out) if out is not None else next_folder(_name_of(model))
        model = _write_model(model, folder)  # with the run: resuming it needs the model again
    recipe = _recipe(str(model), overrides, data_source=_data_source(data))
    folder = Path(out) if out is not None else next_folder(recipe.name)
    if not resume:
        require_free(folder, recipe.name)
    job = Job(
        recipe=recipe,
        target=profile,
        budget=_budget(budget),
        threads=threads,
        adapt=adapt,
        share=Share.parse(share) if share is not None else None,
    )
    record = JobRecord(
        target=target,
        solver=job.solver,
        memory_bytes=job.budget.memory_bytes,
        threads=job.threads,
        adapt=adapt,
        share=share,
    )
    report = fit_job(
        job,
        folder,
        dataset=_dataset(data, recipe),
        callbacks=(JobKeeper(record, folder), *callbacks),
        resume=resume,
    )
    return Run(report=report, folder=folder)


def plan(
    model: Any, *, target: str = HOST, budget: str | int | None = None, solver: str = "greedy", **overrides: object
) -> Explanation:
    """What training would need: the plan's memory, time and energy. Compiles no kernels. Arguments as for `fit`.

    Raises `PlanInfeasibleError` with the smallest budget that works.
    """
    with tempfile.TemporaryDirectory(prefix="edgetrain-model-") as scratch:
        source = model if _is_named(model) else _write_model(model, Path(scratch))
        recipe = _recipe(str(source), overrides, data_source="" if is_model(str(source)) else None)
        job = Job(recipe=recipe, target=load_target(target), budget=_budget(budget), solver=solver)
        compiled = compile_job(resolve_without_data(job), with_kernels=False)
    return explain_plan(compiled.graph, plan_or_advise(compiled).plan)


def override_texts(overrides: Mapping[str, object]) -> tuple[str, ...]:
    """Keyword arguments as the command line writes them. Raises `UsageError` naming every one that is no recipe key."""
    texts, unknown = [], []
    for name, value in overrides.items():
        section, _, key = name.partition("_")
        if section in _SECTIONS and key:
            texts.append(f"{section}.{key}={_toml(value)}")
        elif name in ("metric", "expect"):
            texts.append(f"{name}={_toml(value)}")
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


def _toml(value: object) -> str:
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
            return "{ " + ", ".join(f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)


def _budget(budget: str | int | None) -> Budget:
    if budget is None:
        return Budget()
    return Budget(memory_bytes=parse_bytes(budget) if isinstance(budget, str) else Bytes(budget))


def _is_named(model: Any) -> bool:
    return isinstance(model, str | Path)


def _name_of(proto: Any) -> str:
    """A model in memory goes by its graph's name. Raises `UsageError` for what is no model."""
    if not hasattr(proto, "SerializeToString"):
        raise UsageError(
            f"`{type(proto).__name__}` is not a model",
            fix="pass the path of an .onnx file, a recipe's name, or an onnx.ModelProto",
        )
    return re.sub(r"[^\w.-]+", "-", str(proto.graph.name)).strip("-.") or "model"


def _write_model(proto: Any, folder: Path) -> Path:
    path = folder / f"{_name_of(proto)}{_ORIGINAL}.onnx"
    with replaced_file(path) as file:
        file.write(proto.SerializeToString())
    return path


def _recipe(source: str, overrides: Mapping[str, object], *, data_source: str | None) -> Recipe:
    """`data_source` None leaves the data to the recipe."""
    texts = override_texts(overrides)
    if data_source is not None and "data_source" not in overrides:
        texts = (f"data.source={_toml(data_source)}", *texts)
    recipe = recipe_of(source, texts, needs_data=True)
    return dataclasses.replace(recipe, name=recipe.name.removesuffix(_ORIGINAL)) if is_model(source) else recipe


def _data_source(data: Any) -> str | None:
    match data:
        case None:
            return None
        case str() | Path():
            return str(data)
    return _IN_MEMORY


def _dataset(data: Any, recipe: Recipe) -> Dataset:
    validation, limit = recipe.data.validation, recipe.data.limit
    match data:
        case None | str() | Path():
            return load_dataset(recipe.data)
        case Dataset():
            return data
        case Mapping():
            return _from_mapping(data, validation, limit)
        case (features, labels) if hasattr(features, "shape") and len(features) == len(labels):
            return from_arrays(features, labels, limit=limit, validation=validation)
        case Iterable():
            return from_batches(data, validation=validation)
    raise DataError(
        f"`{type(data).__name__}` is not data",
        fix="pass arrays (x, y), a mapping with x_train and y_train, a path, a Dataset, or batches",
    )


def _from_mapping(data: Mapping[str, Any], validation: float, limit: int | None) -> Dataset:
    missing = [key for key in _TRAIN_KEYS if key not in data]
    if missing:
        raise DataError(f"the data has no {' and no '.join(f'`{key}`' for key in missing)}", fix="add it")
    x, y = (data[key] for key in _TRAIN_KEYS)
    test = tuple(data[key] for key in _TEST_KEYS if key in data)
    return from_arrays(x, y, test=(test[0], test[1]) if len(test) == 2 else None, limit=limit, validation=validation)
