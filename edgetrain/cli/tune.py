"""`edgetrain tune`: searches for faster schedules of a model's kernels, on this machine or through a runner."""

from __future__ import annotations

import argparse
import datetime
import json
import time
from typing import TYPE_CHECKING

from edgetrain.cli.command import Flag, Verb
from edgetrain.cli.console import Console
from edgetrain.cli.request import DEFAULT_RECIPE, OVERRIDES_TEXT, SOURCE_WORDS, TARGET, job_of, positive, split_words
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.errors import UsageError
from edgetrain.pipeline.source import recipe_of
from edgetrain.units import show_seconds

if TYPE_CHECKING:
    from edgetrain.tuning.report import TuningReport
    from edgetrain.tuning.tune import Allowance

DEFAULT_MINUTES = 3.0
_LINES = 10  # progress lines where there is no terminal


def minutes(text: str) -> float:
    """A positive number. Raises `UsageError` for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e6:
        raise UsageError(f"`{text}` is not a number of minutes above 0")
    return value


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.pipeline.resolve import resolve_without_data
    from edgetrain.tuning.device_report import DeviceReport
    from edgetrain.tuning.tune import tune
    from edgetrain.tuning.tune_device import runner_for, tune_through

    allowance = allowance_of(arguments)
    source, overrides = split_words(arguments.words)
    recipe = recipe_of(source or DEFAULT_RECIPE, overrides, needs_data=False)
    with StageProgress(console) as stages:
        job = job_of(arguments, recipe, console, progress=Tuning(stages, console))
        today = datetime.date.today().isoformat()
        report: TuningReport | DeviceReport
        if arguments.runner is None:
            report = tune(resolve_without_data(job), allowance, today=today)
        else:
            report = tune_through(resolve_without_data(job), allowance, runner_for(job, arguments.runner), today=today)
    console.data(json.dumps(report.to_json(), indent=1) + "\n" if console.as_json else report.to_text())
    if isinstance(report, DeviceReport) and report.is_emulated:  # a check, like others
        return 0 if report.is_good else 1
    target = "" if arguments.runner is None else f" --target {arguments.target}"
    console.say(
        f"hint: `edgetrain fit {source or DEFAULT_RECIPE}{target}` uses them, and so do similar kernels of other models"
    )
    return 0


def allowance_of(arguments: argparse.Namespace) -> Allowance:
    from edgetrain.tuning.tune import Allowance

    if arguments.trials is not None and arguments.minutes is not None:
        raise UsageError("--trials and --minutes both say when to stop", fix="give one of them")
    if arguments.trials is not None:
        return Allowance(trials=arguments.trials, deep=arguments.deep)
    return Allowance(seconds=60.0 * (arguments.minutes or DEFAULT_MINUTES), deep=arguments.deep)


class Tuning:
    """The compiler's progress; while kernels are tuned, with what is done and how long it takes still."""

    def __init__(self, stages: StageProgress, console: Console) -> None:
        self._stages = stages
        self._console = console
        self._began_s = 0.0
        self._said = 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        from edgetrain.compiler.search.request import TUNING

        self._stages(stage, done, total)
        if stage != TUNING or not total:
            return
        if not self._began_s:
            self._began_s = time.monotonic()
        part = done * _LINES // total
        if self._console.talk.isatty() or part <= self._said or not 0 < done < total:
            return
        self._said = part
        left_s = (time.monotonic() - self._began_s) * (total - done) / done
        self._console.say(f"{100 * done // total} % tuned, {show_seconds(left_s)} left")


VERB = Verb(
    name="tune",
    summary="search for faster schedules on this machine",
    description=(
        "Tries other schedules for the kernels of a training step, with more trials for the slow kernels. Keeps the "
        "faster ones in the schedule cache: every `fit` on this machine uses them, also for similar kernels of other "
        "models. The results of a schedule are checked against the unscheduled kernel, and its time is compared with "
        "the rule's schedule. A schedule that is faster alone but not in the real step is not used. With --runner, "
        "each kernel is tried alone on the device of --target."
        "\n\n" + OVERRIDES_TEXT
    ),
    words=SOURCE_WORDS,
    flags=(
        TARGET,
        Flag(
            name="--runner",
            metavar="COMMAND",
            help="try schedules on another device, through a command that starts a shell there when `sh` is added, "
            "like 'ssh pi@host'; `emulator` checks their results here, without times",
        ),
        Flag(name="--trials", metavar="N", parse=positive, help="stop after N trials, about half a second each"),
        Flag(
            name="--minutes", metavar="M", parse=minutes, help=f"stop after M minutes; {DEFAULT_MINUTES:g} without both"
        ),
        Flag(
            name="--deep",
            help="use TVM's MetaSchedule for half of the trials; with `edgetrain[deep]` installed it learns from them",
        ),
    ),
    examples=(
        "edgetrain tune digits --trials 50",
        "edgetrain tune model.onnx --minutes 10 train.batch=8",
        "edgetrain tune model.onnx --deep --minutes 60",
        "edgetrain tune digits --target raspberry-pi-4 --runner 'ssh pi@raspberrypi'",
    ),
    run=run,
)
