"""What a job leaves open, decided before its stages begin: what a sparse update trains, a resumed run's schedules."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from pathlib import Path

from edgetrain.compiler.schedules import choices_of, read_records
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset
from edgetrain.errors import UsageError
from edgetrain.pipeline.job import NO_LIMIT, Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.recipes import UpdateSection
from edgetrain.run.contribution_scores import ScoreRequest, scores_from_gradients
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.loop.feed import DatasetFeed
from edgetrain.run.loop.labels import with_fitting_labels
from edgetrain.targets.profile import HOST, load_target

log = logging.getLogger(__name__)


def resolve(job: Job, dataset: Dataset, resumed: RunFolder | None = None) -> Job:
    """The job with nothing left to decide; `resumed` is the folder of a run that goes on."""
    return with_contribution(with_recorded_schedules(job, resumed) if resumed is not None else job, dataset)


def resolve_without_data(job: Job) -> Job:
    """The job as `fit` compiles it, for who has not loaded its data: only a sparse update needs any.

    Raises `UsageError` where it does and there is none, and as `load_dataset` does.
    """
    if job.recipe.update.mode != "sparse":
        return job
    if not job.recipe.data.source:
        raise UsageError(
            "update.mode = 'sparse' needs data to choose what to train",
            why="it measures on training batches how much each tensor would lower the loss",
            fix="add data.source=PATH",
        )
    return with_contribution(job, load_dataset(job.recipe.data))


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
    feed = DatasetFeed(dataset, batch=section.batch, seed=section.seed, conversion=Conversion.of(recipe.data))
    with (
        tempfile.TemporaryDirectory(prefix="edgetrain-scores-") as pages,
        LocalEngine(program, threads=job.threads or job.device.codegen.cores, page_directory=Path(pages)) as engine,
    ):
        contribution = scores_from_gradients(engine, feed, request)
    log.info("scored %d tensors on %d batches", len(contribution.tensors), count)
    return dataclasses.replace(job, contribution=contribution)
