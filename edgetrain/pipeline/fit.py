"""The product on one screen: a job is compiled, planned, built and run, each stage from the one before.

TVM is used inside `compile_job` only, in another process.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from pathlib import Path

from edgetrain.compiler.schedules import summary_text
from edgetrain.dataset.batches import require_batch
from edgetrain.dataset.class_order import in_class_order
from edgetrain.dataset.convert import Conversion, fitting_note
from edgetrain.dataset.load import load_recipe_data
from edgetrain.dataset.samples import Dataset
from edgetrain.errors import UsageError
from edgetrain.files.build_cache import held
from edgetrain.files.encrypted import require_cipher
from edgetrain.files.secret_key import read_key
from edgetrain.pipeline.advice import plan_or_advise
from edgetrain.pipeline.classes import with_classes
from edgetrain.pipeline.job import Job, effective_budget
from edgetrain.pipeline.resolve import resolve
from edgetrain.pipeline.stages import BuiltJob, compile_job, dump_stages
from edgetrain.report.keep_page import keep_run_page
from edgetrain.run.execute import MemoryLimits, Runnable, RunRequest, execute, input_shapes
from edgetrain.run.files.claim import claimed
from edgetrain.run.files.finished import finished_report, how_to_go_on
from edgetrain.run.files.report import RunReport
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import read_reading, read_recipe
from edgetrain.run.limits.open_limits import open_limits
from edgetrain.run.loop.callbacks import Callback
from edgetrain.run.loop.labels import check_label_kind
from edgetrain.targets.profile import HOST, load_target


def fit(
    job: Job,
    out: Path,
    *,
    dataset: Dataset | None = None,
    callbacks: Iterable[Callback] = (),
    resume: bool = False,
    is_new_data: bool = False,
    dump: Path | None = None,
    is_claimed: bool = False,
) -> RunReport:
    """Trains, and leaves checkpoints, log, report, program and the trained model in `out`.

    A run that is resumed and has nothing left to do is left as it is, and its report returned. It goes on with the data
    that it began with, unless `is_new_data` says otherwise. The folder is this run's alone from here to the end;
    `is_claimed` says that the caller has seen to that.
    Raises any `EdgetrainError`; whatever was saved before stays good.
    """
    with contextlib.nullcontext() if is_claimed else claimed(out):
        _require_key(job, RunFolder(out) if resume else None)
        done = finished_report(RunFolder(out), job.recipe) if resume else None
        if done is not None:
            job.notify(f"`{out}` has finished after {done.steps} steps ({done.ending}); nothing was changed")
            job.notify(f"hint: train it further with `{how_to_go_on(RunFolder(out), job.recipe, done)}`")
            return done
        job, data = _with_data(job, dataset, RunFolder(out) if resume else None)
        request = _request(job, out, callbacks, resume=resume, is_new_data=is_new_data)
        built, report = _train(job, data, request)
        keep_run_page(out, job.notify)
        if dump is not None:
            dump_stages(dump, built, report)
        return report


def _require_key(job: Job, resumed: RunFolder | None) -> None:
    """Raises `UsageError` for a key that is not there, before anything takes time; and for one that comes or goes."""
    if read_key(job.recipe.security.key) is not None:
        require_cipher()
    if resumed is None:
        return
    before = read_recipe(resumed).security.key
    if bool(before) != bool(job.recipe.security.key):
        raise UsageError(
            f"the run in `{resumed.path}` {'is' if before else 'is not'} encrypted, and `security.key` "
            f"{'is empty' if before else 'is set'}",
            why="what a run has written stays on the disk: a run is encrypted from its beginning on, or not",
            fix="leave `security.key` as it was, or start a new run with --out",
        )


def _with_data(job: Job, dataset: Dataset | None, resumed: RunFolder | None) -> tuple[Job, Dataset]:
    """The job with nothing left to decide, and its data, numbered as in the run that is resumed."""
    data = dataset if dataset is not None else load_recipe_data(job.recipe)  # first: it fails fastest
    check_label_kind(data, job.recipe.train.loss)
    require_batch(len(data.train), job.recipe.train.batch)
    for note in data.notes:
        job.notify(note)
    if resumed is not None:
        data = in_class_order(data, read_reading(resumed, read_key(job.recipe.security.key)).class_names)
    else:
        job, data = with_classes(job, data)
    return resolve(job, data, resumed), data


def _train(job: Job, data: Dataset, request: RunRequest) -> tuple[BuiltJob, RunReport]:
    compiled = compile_job(job, batches=0 if request.resume else job.recipe.train.batches(len(data.train)))
    fitting = fitting_note(data.train.features, input_shapes(compiled.compiled), Conversion.of(job.recipe.data))
    if fitting:
        job.notify(fitting)
    job.inform(compiled.update_report().to_text())
    job.inform(summary_text([r.choice for r in compiled.compiled.schedules.values()], compiled.compiled.trials))
    ladder = compiled.ladder() if job.is_governed else None
    budget = effective_budget(job)
    with open_limits(
        ladder,
        adapt=job.adapt,
        share=job.share,
        budget_bytes=budget.memory_bytes,
        folder=request.folder.path,
        notify=job.inform,
    ) as opened:
        first = dataclasses.replace(budget, memory_bytes=opened.begin_with(budget.memory_bytes))
        built = plan_or_advise(compiled.asking(budget=first)).build()
        limits = MemoryLimits(
            budget_bytes=budget.memory_bytes,
            reserve_bytes=built.plan.keep_all_bytes or built.plan.peak_bytes,
            ladder=ladder,
            others=opened.limits,
        )
        with held(built.compiled.directory):  # for the trained model, and for other plans while it runs
            return built, execute(_runnable(built), data, request, limits)


def _runnable(built: BuiltJob) -> Runnable:
    return Runnable(compiled=built.compiled, plan=built.plan, program=built.program)


def _request(job: Job, out: Path, callbacks: Iterable[Callback], *, resume: bool, is_new_data: bool) -> RunRequest:
    gpu = job.device.gpu
    return RunRequest(
        recipe=job.recipe,
        folder=RunFolder(out),
        target=job.target.name,
        is_target_here=job.target.is_host and gpu is None,  # sensors are the processor's
        ran_on="this host" if gpu is None else job.target.summary,
        threads=(job.threads or load_target(HOST).device.codegen.cores) if gpu is None else 1,  # which launches all
        carbon=job.carbon,
        resume=resume,
        is_new_data=is_new_data,
        callbacks=tuple(callbacks),
    )
