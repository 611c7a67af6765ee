"""`edgetrain fit`: trains inside the budget, and reports the measured memory."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgetrain.cli.command import Flag, Verb, to_path
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
from edgetrain.files.sealed import sealed
from edgetrain.pipeline.source import recipe_of
from edgetrain.units import parse_seconds

if TYPE_CHECKING:
    from edgetrain.pipeline.job import Job
    from edgetrain.recipes import Recipe
    from edgetrain.run.files.folders import JobRecord
    from edgetrain.run.loop.callbacks import Callback


def run(arguments: argparse.Namespace, console: Console) -> int:
    with _recipe_and_folder(arguments) as (recipe, folder):
        return _fit(arguments, console, recipe, folder)


def _fit(arguments: argparse.Namespace, console: Console, recipe: Recipe, folder: Path) -> int:
    from edgetrain.pipeline.fit import fit
    from edgetrain.run.files.folders import JobKeeper, JobRecord, is_resumable
    from edgetrain.run.files.tensorboard import TENSORBOARD, TensorBoard
    from edgetrain.run.loop.callbacks import ProgressBar

    stored = JobRecord.read(folder) if arguments.resume else None
    console.say(f"{'resuming' if arguments.resume else 'run folder'} {folder}")
    callbacks: list[Callback] = [] if console.quiet else [ProgressBar(console.talk)]
    event_files = folder / TENSORBOARD
    if arguments.tensorboard or (arguments.resume and event_files.is_dir()):
        callbacks.append(TensorBoard(event_files))
    try:
        with StageProgress(console) as stages, _watched(arguments, recipe, folder, console) as watching:
            job = job_of(arguments, recipe, console, progress=stages, stored=stored)
            job = with_trial_time(_sharing(job, arguments, stored), arguments)
            # A profile's path, not its name, finds it again.
            record = record_of(job, target=arguments.target or (stored.target if stored else job.target.name))
            report = fit(
                job,
                folder,
                callbacks=(stages, JobKeeper(record, folder), *callbacks, *watching),
                resume=arguments.resume,
                is_new_data=arguments.new_data,
                dump=arguments.dump,
                is_claimed=True,
            )
    except KeyboardInterrupt as interruption:
        if not is_resumable(folder):
            raise  # nothing was changed
        raise InterruptedRunError(
            "interrupted",
            why=f"`{folder}` holds the last checkpoint",
            fix=f"go on with `edgetrain fit {recipe.name} --resume --out {shlex.quote(str(folder))}`",
        ) from interruption
    console.data(sealed(report.to_json()) if console.as_json else f"{report.to_text()}\nrun folder: {folder}\n")
    console.say(f"hint: `edgetrain eval {shlex.quote(str(folder))}` evaluates it again")
    return 0


@contextlib.contextmanager
def _watched(
    arguments: argparse.Namespace, recipe: Recipe, folder: Path, console: Console
) -> Iterator[tuple[Callback, ...]]:
    """Serves the run's page where that is asked for. It begins here: its memory is then not that of the program."""
    if not arguments.watch:
        yield ()
        return
    from edgetrain.report.live.server import WatchServer
    from edgetrain.report.live.watch import Watch

    watch = Watch(folder, name=recipe.name, budget_bytes=arguments.budget, resumes=arguments.resume)
    server = WatchServer(watch)
    server.start()
    console.warn(f"watch it at {server.address} (on this machine; who has the address can read along)")
    try:
        yield (watch,)
    finally:
        server.close()


@contextlib.contextmanager
def _recipe_and_folder(arguments: argparse.Namespace) -> Iterator[tuple[Recipe, Path]]:
    """What to train, and the folder for it, which no other process has until the block ends."""
    from edgetrain.run.files.claim import new_run_folder, resumed_run_folder
    from edgetrain.run.files.folders import newest_resumable
    from edgetrain.run.files.run_folder import RunFolder
    from edgetrain.run.files.trained import read_recipe

    source, overrides = split_words(arguments.words)
    if not arguments.resume:
        if arguments.new_data:
            raise UsageError("--new-data needs --resume", why="a new run has no data yet that it began with")
        recipe = recipe_of(source or DEFAULT_RECIPE, overrides, needs_data=True)
        with new_run_folder(arguments.out, recipe.name) as folder:
            yield recipe, folder
        return
    name = Path(source.removeprefix("zoo:")).stem if source else None
    with resumed_run_folder(arguments.out or newest_resumable(name)) as folder:
        recipe = read_recipe(RunFolder(folder), overrides)
        if name is not None and name != recipe.name:
            raise UsageError(
                f"`{folder}` is a run of `{recipe.name}`, not of `{name}`",
                fix=f"resume it with `edgetrain fit --resume --out {shlex.quote(str(folder))}`",
            )
        yield recipe, folder


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
            raise UsageError(f"--{lost[0]} needs --share", fix="add `--share desk=2GB`")
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
        Flag(
            name="--out",
            metavar="DIR",
            parse=to_path,
            help="the run folder; the first free of runs/NAME, runs/NAME-2",
        ),
        Flag(name="--resume", help="continue from the checkpoint in --out, or from the newest run of that name"),
        Flag(name="--new-data", help="with --resume: go on although the data is not what the run began with"),
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
        Flag(
            name="--watch", help="serve a page that shows the run while it goes on, to this machine; prints its address"
        ),
        Flag(name="--tensorboard", help="also write event files to RUN/tensorboard, for `tensorboard --logdir runs`"),
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
