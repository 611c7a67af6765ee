"""A run folder opened again: its program with its trained parameters, and no compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgetrain.dataset.batches import evaluation_batches
from edgetrain.dataset.convert import check_sample
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Dataset, Part, Samples
from edgetrain.errors import DataError
from edgetrain.files.regular_file import require_regular_files
from edgetrain.files.secret_key import SecretKey, read_key
from edgetrain.graph.ir import EVALUATE, LABELS, Role, evaluated
from edgetrain.model.tensor_names import graph_name, onnx_name
from edgetrain.program.artifact import Artifact, load_artifact
from edgetrain.recipes import Recipe
from edgetrain.run.engines.engine import Array
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.files.checkpoint import BEST, NEWEST, PREVIOUS, load_checkpoint, read_header
from edgetrain.run.files.protected import protected_bytes
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.loop.evaluation import evaluate
from edgetrain.run.loop.feed import TEST, DatasetFeed, conversion_of
from edgetrain.run.loop.labels import fitting_part
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings, loss_options_of
from edgetrain.run.loop.targets import scaled_part

_TRAINING_PREFIX = "train."  # what the training loop feeds: labels, the learning rate


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """A run that has a checkpoint. `checkpoint` holds the best parameters where the run knew which those are."""

    folder: RunFolder
    recipe: Recipe
    reading: Reading
    program: Artifact
    checkpoint: Path
    step: int
    key: SecretKey | None = None  # what its files are encrypted with

    @property
    def inputs(self) -> tuple[str, ...]:
        """By their ONNX names."""
        names = (tensor.name for tensor in self.program.graph.by_role(Role.INPUT))
        return tuple(onnx_name(name) for name in names if not name.startswith(_TRAINING_PREFIX))

    @property
    def output(self) -> str:
        """The model's first output, by its ONNX name: the one that the loss read."""
        prefix = evaluated("")
        names = (tensor.name for tensor in self.program.graph.by_role(Role.OUTPUT))
        return next(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def open_run(path: Path) -> TrainedRun:
    """Raises `DataError` when `path` is not a run folder, or its program or checkpoints are damaged."""
    folder = RunFolder(path)
    recipe = read_recipe(folder)
    key = read_key(recipe.security.key)
    checkpoint, step = trained_checkpoint(path, key)
    return TrainedRun(
        folder=folder,
        recipe=recipe,
        reading=read_reading(folder, key),
        program=load_artifact(folder.program),
        checkpoint=checkpoint,
        step=step,
        key=key,
    )


def read_reading(folder: RunFolder, key: SecretKey | None) -> Reading:
    """How the run's data became numbers. Raises `DataError` for a broken file; runs of version 0.1 have none."""
    if not folder.reading.exists():
        return Reading()
    return Reading.from_json(protected_bytes(folder.reading, key).decode(errors="replace"), where=str(folder.reading))


def read_recipe(folder: RunFolder, overrides: tuple[str, ...] = ()) -> Recipe:
    """The recipe a run was started with. Raises `DataError` where there is none, `UsageError` for bad overrides."""
    require_regular_files(folder.path, DataError)
    try:
        text = folder.recipe.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"`{folder.path}` is not a run folder",
            why=f"{folder.recipe.name} cannot be read: {error}",
            fix="give the folder that `edgetrain fit` named at its end, like `runs/digits`",
        ) from error
    return Recipe.from_json(text, overrides)


def trained_checkpoint(path: Path, key: SecretKey | None = None) -> tuple[Path, int]:
    """The best parameters of the run where they were kept, else its newest."""
    newest = newest_checkpoint(path)
    progress = read_header(newest, key=key).progress
    if progress.best is not None and progress.best.step != progress.step and (path / BEST).exists():
        best = read_header(path / BEST, key=key).progress
        if best.step == progress.best.step:
            return path / BEST, best.step
    return newest, progress.step


def newest_checkpoint(path: Path) -> Path:
    """The newest one; a run that was cut between two renames has its previous only."""
    return path / NEWEST if (path / NEWEST).exists() else path / PREVIOUS


def load_trained(run: TrainedRun, saved: memoryview) -> None:
    """Fills `saved` with the trained parameters. Raises as `load_checkpoint`."""
    program_sha256 = read_header(run.checkpoint, key=run.key).program_sha256
    load_checkpoint(run.checkpoint, saved, program_sha256=program_sha256, key=run.key)


@contextlib.contextmanager
def trained_engine(run: TrainedRun, *, threads: int) -> Iterator[LocalEngine]:
    """The run's program on this machine, its memory holding the trained parameters. Raises as `load_checkpoint`."""
    with LocalEngine(run.program, threads=threads, page_directory=run.folder.path) as engine:
        load_trained(run, engine.saved)
        yield engine


def evaluate_run(run: TrainedRun, part: Part, *, threads: int) -> Mapping[str, float]:
    """Loss and metric of the run's recipe over every sample of the part.

    Raises `DataError` when the data does not fit the model.
    """
    recipe = run.recipe
    conversion = conversion_of(recipe.data, run.program.graph)
    inputs = {name: run.program.graph.tensors[graph_name(name)] for name in run.inputs}
    check_sample(part.features[0], {n: (t.shape[1:], t.dtype) for n, t in inputs.items()}, conversion)
    part = fitting_part(part, recipe.train.loss, run.program.graph, run.output, name="the test part")
    part = scaled_part(part, run.reading.target)
    settings = TrainSettings(
        program_sha256="",
        inputs=run.inputs,
        output=run.output,
        loss=recipe.train.loss,
        loss_options=loss_options_of(recipe),
        epochs=1,
        learning_rate=LearningRate(peak=recipe.train.learning_rate),
        metrics=(recipe.metric,),
        target=run.reading.target,
    )
    # Only the evaluation part is read; a feed also wants a training part that fills a batch.
    batch = inputs[run.inputs[0]].shape[0]
    enough = np.zeros(batch, np.int64)
    feed = DatasetFeed(
        Dataset(name="", train=part.take(enough), test=part),
        batch=batch,
        seed=recipe.train.seed,
        conversion=conversion,
    )
    with trained_engine(run, threads=threads) as engine:
        return evaluate(engine, feed, settings, TEST) or {}


def predict(run: TrainedRun, features: Samples, *, threads: int) -> Array:
    """The model's first output for each sample: logits for a classifier, values in the units of the data."""
    conversion = conversion_of(run.recipe.data, run.program.graph)
    part = Part(features=features, labels=np.zeros(len(features), np.int64))
    with trained_engine(run, threads=threads) as engine:
        inputs = {name: engine.tensor(graph_name(name)) for name in run.inputs}
        outputs = engine.tensor(evaluated(run.output))
        unused_labels = np.zeros(len(outputs), engine.tensor(LABELS).dtype)
        rows = []
        for valid_rows in evaluation_batches(part, inputs, unused_labels, conversion):
            engine.call(EVALUATE)
            rows.append(run.reading.target.back(outputs[:valid_rows].copy()))
    return np.concatenate(rows) if rows else np.zeros((0, *outputs.shape[1:]), outputs.dtype)
