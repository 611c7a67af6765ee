"""`edgetrain fit`: trains inside the budget, and reports the measured memory."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from edgetrain.cli.command import Flag, Verb
from edgetrain.cli.console import Console
from edgetrain.cli.request import (
    BUDGET,
    CO2,
    DEADLINE,
    DEFAULT_RECIPE,
    DUMP,
    ENERGY,
    OVERRIDES_TEXT,
    PLANNING_FLAGS,
    SOURCE_WORDS,
    TARGET,
    job_of,
    positive,
    split_words,
)
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.cost.carbon import WORLD_AVERAGE
from edgetrain.errors import InterruptedRunError, UsageError
from edgetrain.pipeline.source import recipe_of
from edgetrain.units import parse_seconds

if TYPE_CHECKING:
    from edgetrain.pipeline.job import Job
    from edgetrain.recipes import Recipe
    from edgetrain.run.files.folders import JobRecord


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.pipeline.fit import fit
    from edgetrain.run.files.folders import JobKeeper, JobRecord, is_resumable
    from edgetrain.run.loop.callbacks import ProgressBar

    recipe, folder = _recipe_and_folder(arguments)
    stored = JobRecord.read(folder) if arguments.resume else None
    console.say(f"{'resuming' if arguments.resume else 'run folder'} {folder}")
    callbacks = () if console.quiet else (ProgressBar(console.talk),)
    try:
        with StageProgress(console) as stages:
            job = job_of(arguments, recipe, console, progress=stages, stored=stored)
            job = with_trial_time(_sharing(job, arguments, stored), arguments)
            # A profile's path, not its name, finds it again.
            record = record_of(job, target=arguments.target or (stored.target if stored else job.target.name))
            report = fit(
                job,
                folder,
                callbacks=(stages, JobKeeper(record, folder), *callbacks),
                resume=arguments.resume,
                dump=arguments.dump,
            )
    except KeyboardInterrupt as interruption:
        if not is_resumable(folder):
            raise  # nothing was changed
        raise InterruptedRunError(
            "interrupted",
            why=f"`{folder}` holds the last checkpoint",
            fix=f"go on with `edgetrain fit {recipe.name} --resume --out {shlex.quote(str(folder))}`",
        ) from interruption
    console.data(report.to_json() if console.as_json else f"{report.to_text()}\nrun folder: {folder}\n")
    console.say(f"hint: `edgetrain eval {shlex.quote(str(folder))}` evaluates it again")
    return 0


def _recipe_and_folder(arguments: argparse.Namespace) -> tuple[Recipe, Path]:
    from edgetrain.run.files.folders import newest_resumable, next_folder, require_free
    from edgetrain.run.files.run_folder import RunFolder
    from edgetrain.run.files.trained import read_recipe

    source, overrides = split_words(arguments.words)
    if not arguments.resume:
        recipe = recipe_of(source or DEFAULT_RECIPE, overrides, needs_data=True)
        folder = arguments.out or next_folder(recipe.name)
        require_free(folder, recipe.name)
        return recipe, folder
    name = Path(source.removeprefix("zoo:")).stem if source else None
    folder = arguments.out or newest_resumable(name)
    recipe = read_recipe(RunFolder(folder), overrides)
    if name is not None and name != recipe.name:
        raise UsageError(
            f"`{folder}` is a run of `{recipe.name}`, not of `{name}`",
            fix=f"resume it with `edgetrain fit --resume --out {shlex.quote(str(folder))}`",
        )
    return recipe, folder


def record_of(job: Job, *, target: str) -> JobRecord:
    """What `--resume` will ask for again."""
    from edgetrain.planner.solvers.options import USUAL
    from edgetrain.run.files.folders import JobRecord

    return JobRecord(
        target=target,
        solver=job.solver,
        memory_bytes=job.budget.memory_bytes,
        deadline_s=job.budget.deadline_s,
        energy_j=job.budget.energy_j,
        written_bytes=job.budget.written_bytes,
        energy_share=job.planning.energy_share or None,
        mip_solver=job.planning.mip_solver if job.planning.mip_solver != USUAL.mip_solver else None,
        nodes=job.planning.nodes,
        co2_g_per_kwh=job.carbon.g_per_kwh if job.carbon != WORLD_AVERAGE else None,
        threads=job.threads,
        adapt=job.adapt,
        share=f"{job.share.name}={job.share.total_bytes}" if job.share is not None else None,
        weight=job.share.weight if job.share is not None else None,
    )


def with_trial_time(job: Job, arguments: argparse.Namespace) -> Job:
    """The job with the time that its flag gives to trials."""
    if arguments.trial_time is None:
        return job
    return dataclasses.replace(job, trials=dataclasses.replace(job.trials, seconds=arguments.trial_time))


def _sharing(job: Job, arguments: argparse.Namespace, stored: JobRecord | None) -> Job:
    """The job with what it does when memory becomes short; where no flag says, as in `stored`."""
    from edgetrain.run.limits.broker import Share

    text = arguments.share or (stored.share if stored is not None else None)
    weight = arguments.weight or (stored.weight if stored is not None else None) or 1
    adapt = arguments.adapt or (stored is not None and stored.adapt)
    if text is None:
        lost = [name for name in ("weight", "wait") if getattr(arguments, name)]
        if lost:
            raise UsageError(f"--{lost[0]} needs --share", fix="add --share NAME=SIZE")
        return dataclasses.replace(job, adapt=adapt)
    share = dataclasses.replace(Share.parse(text), weight=weight, wait=arguments.wait)
    return dataclasses.replace(job, adapt=adapt, share=share)


VERB = Verb(
    name="fit",
    summary="train a model inside a memory budget",
    description=(
        "Fine-tunes a model and leaves the trained model, checkpoints, log, plot, report and compiled program in a run "
        "folder. RECIPE is a name from `edgetrain recipes` or a .toml file; without one it is `digits`. "
        "A MODEL.onnx needs data.source=PATH.\n\n" + OVERRIDES_TEXT
    ),
    words=SOURCE_WORDS,
    flags=(
        TARGET,
        BUDGET,
        DEADLINE,
        ENERGY,
        CO2,
        Flag(name="--out", metavar="DIR", parse=Path, help="the run folder; the first free of runs/NAME, runs/NAME-2"),
        Flag(name="--resume", help="continue from the checkpoint in --out, or from the newest run of that name"),
        Flag(name="--threads", metavar="N", parse=positive, help="threads to train with; all cores without it"),
        Flag(
            name="--trial-time",
            metavar="TIME",
            parse=parse_seconds,
            help=(
                "time to try schedules that were not measured on this machine, before training; a tenth of the run's "
                "expected time without it, 5s to 20s; with 0s none is tried, and none of them is used"
            ),
        ),
        Flag(name="--adapt", help="switch to a smaller plan while this machine is short of memory"),
        Flag(
            name="--share",
            metavar="NAME=SIZE",
            help="share SIZE of memory with all jobs that give the same NAME: desk=2GB",
        ),
        Flag(
            name="--weight",
            metavar="N",
            parse=positive,
            help="weight of this job when the jobs of a share divide its spare memory: 1",
        ),
        Flag(name="--wait", help="wait until the share has room for this job, instead of ending with code 3"),
        *PLANNING_FLAGS,
        DUMP,
    ),
    examples=(
        "edgetrain fit",
        "edgetrain fit digits train.epochs=3 --budget 1MB",
        "edgetrain fit digits --target jetson --budget 2GB --out runs/jetson",
        "edgetrain fit digits --share desk=2GB --adapt",
        "edgetrain fit digits --resume",
    ),
    run=run,
)
