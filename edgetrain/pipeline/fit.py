"""The product on one screen: model → graph → plan → program → run, five calls.

Each stage takes the previous one's result and nothing else that changes, so any stage can be tested, dumped or
started from a dump alone. TVM is used inside `compile_graph` only, in another process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from edgetrain.compiler.schedules import summary_text
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset
from edgetrain.pipeline.advice import plan_or_ways_out
from edgetrain.pipeline.job import Job, effective_budget
from edgetrain.pipeline.resolve import with_contribution, with_recorded_schedules
from edgetrain.pipeline.stages import compile_stage, dump_stages, ladder_stage, program_stage, report_update
from edgetrain.run.execute import RunFolder, execute
from edgetrain.run.files.report import RunReport
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
    job = with_contribution(with_recorded_schedules(job, RunFolder(out)) if resume else job, data)
    compiled = compile_stage(job, batches=0 if resume else job.recipe.train.batches(len(data.train)))
    job.inform(report_update(job, compiled).to_text())
    job.inform(summary_text([record.choice for record in compiled.schedules.values()], compiled.trials))
    ladder = ladder_stage(job, compiled) if job.adapt or job.share is not None else None
    budget = effective_budget(job)
    with open_limits(
        ladder, adapt=job.adapt, share=job.share, budget_bytes=budget.memory_bytes, folder=out, notify=job.notify
    ) as opened:
        within = dataclasses.replace(budget, memory_bytes=opened.begin_with(budget.memory_bytes))
        job = dataclasses.replace(job, budget=within)
        plan = plan_or_ways_out(job, compiled)
        program = program_stage(job, compiled, plan)
        report = execute(
            program,
            compiled,
            data,
            job.recipe,
            folder=RunFolder(out),
            plan=plan,
            budget_bytes=budget.memory_bytes,
            target=job.target.name,
            threads=job.threads or load_target(HOST).codegen.cores,
            is_target_here=job.target.is_host,
            carbon=job.carbon,
            callbacks=callbacks,
            resume=resume,
            ladder=ladder,
            limits=opened.limits,
            reserve_bytes=plan.keep_all_bytes or plan.peak_bytes,
        )
    if dump is not None:
        dump_stages(dump, job, compiled, plan, program, report)
    return report
