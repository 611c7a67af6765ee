"""What a job leaves open, decided before its stages begin: what a sparse update trains, a resumed run's schedules."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from edgetrain.compiler.schedules import choices_of, read_records
from edgetrain.dataset.augment.augmentation import check_augmentation
from edgetrain.dataset.class_weights import balanced_class_weights
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.load import load_recipe_data
from edgetrain.dataset.samples import Dataset
from edgetrain.errors import DataError, UsageError
from edgetrain.files.scratch import scratch_folder
from edgetrain.pipeline.classes import needs_classes, with_classes
from edgetrain.pipeline.job import NO_LIMIT, Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.recipes import BALANCED, UpdateSection
from edgetrain.run.contribution_scores import ScoreRequest, scores_from_gradients
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.loop.feed import DatasetFeed, conversion_of
from edgetrain.run.loop.labels import with_fitting_labels
from edgetrain.run.loop.targets import scaling_of, with_scaled_targets
from edgetrain.targets.profile import HOST, load_target

log = logging.getLogger(__name__)


def resolve(job: Job, dataset: Dataset, resumed: RunFolder | None = None) -> Job:
    """The job with nothing left to decide; `resumed` is the folder of a run that goes on.

    Raises `UsageError` where the recipe augments what the data is not.
    """
    recipe = job.recipe
    check_augmentation(recipe.data.augment, dataset.train, Conversion.of(recipe.data), loss=recipe.train.loss)
    job = with_class_weights(job, dataset)
    return with_contribution(with_recorded_schedules(job, resumed) if resumed is not None else job, dataset)


def resolve_without_data(job: Job) -> Job:
    """The job as `fit` compiles it, for who has not loaded its data.

    Data that the recipe names decides how many classes the model tells apart; where it cannot be read, or none is
    named, the model keeps its last layer. Raises `UsageError` for a sparse update or balanced classes without data,
    and then as `load_dataset` does.
    """
    recipe = job.recipe
    needs = (
        (
            recipe.update.mode == "sparse",
            "update.mode=sparse needs data to choose what to train",
            "it measures on training batches how much each tensor would lower the loss",
        ),
        (
            recipe.train.class_weights == BALANCED,
            "train.class_weights=balanced needs data to count the classes in",
            "a class weighs the more the fewer samples it has",
        ),
    )
    wanted = [(what, why) for is_wanted, what, why in needs if is_wanted]
    if wanted and not recipe.data.source:
        raise UsageError(wanted[0][0], why=wanted[0][1], fix="add `data.source=PATH`")
    if not wanted and not needs_classes(recipe):
        return job
    try:
        dataset = load_recipe_data(recipe)
    except DataError as error:
        if wanted:
            raise
        job.inform(f"the model keeps its last layer: the data cannot be read here ({error.what})")
        return job
    job, dataset = with_classes(job, dataset)
    return with_contribution(with_class_weights(job, dataset), dataset)


def with_class_weights(job: Job, dataset: Dataset) -> Job:
    """The job with a number for each class, where its recipe leaves them to the data.

    They become part of the run's recipe: a run that goes on has the weights that it began with.
    """
    recipe = job.recipe
    if recipe.train.class_weights != BALANCED:
        return job
    weights = balanced_class_weights(dataset.train, recipe.model.classes or dataset.classes or 0)
    log.info("class weights: %s", ", ".join(f"{weight:.3g}" for weight in weights))
    train = dataclasses.replace(recipe.train, class_weights=weights)
    return dataclasses.replace(job, recipe=dataclasses.replace(recipe, train=train))


def with_recorded_schedules(job: Job, folder: RunFolder) -> Job:
    """The job with the schedules that a run began with: another order of sums would end with other bits."""
    if not folder.schedules.exists():
        return job
    return dataclasses.replace(job, schedules=choices_of(read_records(folder.schedules)))


def with_contribution(job: Job, dataset: Dataset) -> Job:
    """The job with what a sparse update needs to choose: how much each parameter would lower the loss."""
    recipe = job.recipe
    if recipe.update.mode != "sparse" or job.contribution is not None:
        return job
    count = max(2, recipe.update.calibrate)  # gradients are summed up from two batches on
    section = dataclasses.replace(recipe.train, optimizer="sgd", momentum=0.0, accumulate=count, clip_norm=0.0)
    full = dataclasses.replace(recipe, train=section, update=UpdateSection())
    # With the rules' schedules: the same data must choose the same parameters, whatever is tuned meanwhile.
    scoring_job = dataclasses.replace(job, recipe=full, target=load_target(HOST), budget=NO_LIMIT, schedules={})
    built = compile_job(scoring_job).plan().build()
    compiled, program = built.compiled, built.program
    request = ScoreRequest(
        inputs=tuple(i["name"] for i in compiled.facts["inputs"]),
        names=tuple(compiled.facts["trained"]),
        batches=count,
        output_axes=compiled.facts["output_axes"],
    )
    dataset = with_fitting_labels(dataset, section.loss, program.graph, compiled.facts["outputs"][0])
    dataset = with_scaled_targets(dataset, scaling_of(dataset, recipe))
    conversion = conversion_of(recipe.data, program.graph)
    feed = DatasetFeed(dataset, batch=section.batch, seed=section.seed, conversion=conversion)
    with (
        scratch_folder("scores") as pages,
        LocalEngine(program, threads=job.threads or job.device.codegen.cores, page_directory=Path(pages)) as engine,
    ):
        contribution = scores_from_gradients(engine, feed, request)
    log.info("scored %d tensors on %d batches", len(contribution.tensors), count)
    return dataclasses.replace(job, contribution=contribution)
