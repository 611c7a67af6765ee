"""The product on one screen: a job is compiled, planned, built and run, each stage from the one before.

TVM is used inside `compile_job` only, in another process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from edgetrain.compiler.schedules import summary_text
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset
from edgetrain.pipeline.advice import plan_or_advise
from edgetrain.pipeline.job import Job, effective_budget
from edgetrain.pipeline.resolve import resolve
from edgetrain.pipeline.stages import BuiltJob, compile_job, dump_stages
from edgetrain.run.execute import MemoryLimits, Runnable, RunRequest, execute
from edgetrain.run.files.report import RunReport
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.limits.open_limits import open_limits
from edgetrain.run.loop.callbacks import Callback
from edgetrain.targets.profile import HOST, load_target


def fit(
    job: Job,
    out: Path,
    *,
    dataset: Dataset | None = None,
    callbacks: Iterable[Callback] = (),
    resume: bool = False,
    dump: Path | None = None,
) -> RunReport:
    """Trains, and leaves checkpoints, log, report, program and the trained model in `out`.

    Raises any `EdgetrainError`; whatever was saved before stays good.
    """
    data = dataset if dataset is not None else load_dataset(job.recipe.data)  # first: it fails fastest
    job = resolve(job, data, RunFolder(out) if resume else None)
    compiled = compile_job(job, batches=0 if resume else job.recipe.train.batches(len(data.train)))
    job.inform(compiled.update_report().to_text())
    job.inform(summary_text([r.choice for r in compiled.compiled.schedules.values()], compiled.compiled.trials))
    ladder = compiled.ladder() if job.is_governed else None
    budget = effective_budget(job)
    with open_limits(
        ladder, adapt=job.adapt, share=job.share, budget_bytes=budget.memory_bytes, folder=out, notify=job.notify
    ) as opened:
        first = dataclasses.replace(budget, memory_bytes=opened.begin_with(budget.memory_bytes))
        built = plan_or_advise(compiled.asking(budget=first)).build()
        limits = MemoryLimits(
            budget_bytes=budget.memory_bytes,
            reserve_bytes=built.plan.keep_all_bytes or built.plan.peak_bytes,
            ladder=ladder,
            others=opened.limits,
        )
        report = execute(_runnable(built), data, _request(job, out, callbacks, resume=resume), limits)
    if dump is not None:
        dump_stages(dump, built, report)
    return report


def _runnable(built: BuiltJob) -> Runnable:
    return Runnable(compiled=built.compiled, plan=built.plan, program=built.program)


def _request(job: Job, out: Path, callbacks: Iterable[Callback], *, resume: bool) -> RunRequest:
    return RunRequest(
        recipe=job.recipe,
        folder=RunFolder(out),
        target=job.target.name,
        is_target_here=job.target.is_host,
        threads=job.threads or load_target(HOST).device.codegen.cores,
        carbon=job.carbon,
        resume=resume,
        callbacks=tuple(callbacks),
    )
