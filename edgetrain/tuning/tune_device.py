"""Better schedules for a device that a command reaches: searched here, measured there, kept for its target.

The step itself is not run there: a kernel's winner is what was fastest alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Sequence

from edgetrain.compiler.measure.runners import EMULATOR, Runner, runner_of
from edgetrain.compiler.schedules import RULE
from edgetrain.compiler.search.request import TunedKernel, search_schedules
from edgetrain.compiler.search.trials import Origin
from edgetrain.errors import DeviceError, UsageError
from edgetrain.graph.ir import STEP
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import CompiledJob, compile_job
from edgetrain.targets.host import machine_id
from edgetrain.toolchain.c_compiler import find_compiler, parse_triple, static_triple
from edgetrain.tuning.device_report import DeviceReport, DeviceRow
from edgetrain.tuning.tune import Allowance, entries_of_trials, keeping, search_request, weights_of
from edgetrain_tuner.measure.outcome import CHECKED, TIMED_OUT

# What an emulator's trial teaches nobody: that something is right, and how long it takes.
_NO_LESSONS = (CHECKED, TIMED_OUT)


def tune_through(job: Job, allowance: Allowance, runner: Runner, *, today: str) -> DeviceReport:
    """Searches with trials on the runner's device, and stores what was learned under the job's target.

    An emulator's trials are compared and not timed: only failures are stored. Raises `DeviceError` where the device
    is lost, after storing what was learned until then.
    """
    stores, target = keeping(job)
    plain = compile_job(dataclasses.replace(job, schedules={}), with_kernels=False)
    modelled = {name: float(cost.seconds) for name, cost in plain.costs[STEP].items()}
    weights = weights_of(plain, modelled)
    if runner.is_emulated:  # what is light can be wrong as well
        weights = {op.kernel: 1.0 for op in plain.graph.functions[STEP]}
    searched = search_schedules(search_request(job, weights, allowance, runner), job.progress)
    lessons = _lessons(searched.kernels) if runner.is_emulated else searched.kernels
    origin = Origin(machine=device_id(runner), today=today, model=job.recipe.name, tool=job.tool)
    entries = list(entries_of_trials(target, lessons, set(), origin))
    with stores.opened() as levels:
        levels.user.put_all(entries)
    if searched.lost is not None:
        stored = f"; what was learned until then is stored: {len(entries)} schedules" if entries else ""
        raise DeviceError(f"{searched.lost.what}{stored}", why=searched.lost.why, fix=searched.lost.fix)
    _require_some(job, searched.kernels)
    rows = tuple(_row(plain, kernel) for kernel in searched.kernels)
    return DeviceReport(
        model=job.recipe.name,
        target=job.target.name,
        runner=runner.text,
        is_emulated=runner.is_emulated,
        entries=len(entries),
        untried=len(weights) - len(rows),
        kernels=tuple(sorted(rows, key=lambda row: (-row.calls * row.seconds, row.symbol))),
    )


def _require_some(job: Job, kernels: Sequence[TunedKernel]) -> None:
    """Raises `DeviceError` where not one kernel could be tried: that is not the kernels' fault."""
    failures = [kernel.failure for kernel in kernels if kernel.failure]
    if kernels and len(failures) == len(kernels):
        raise DeviceError(
            f"none of {len(kernels)} kernels could be tried on {job.target.name}",
            why=failures[0],
            fix="check that --target is that device: a program for another processor ends with 132",
        )


def runner_for(job: Job, text: str) -> Runner:
    """What `--runner` says, for the job's target.

    Raises `UsageError` for this machine, which needs none, and `DeviceError` for a device without an operating system
    or without a compiler here.
    """
    if job.target.is_host:
        raise UsageError(
            "--runner is for another device, and the target is this machine",
            fix="name the device with --target, or leave --runner out",
        )
    triple = job.device.codegen.triple
    if parse_triple(triple).is_bare_metal:
        raise DeviceError(
            f"schedules for {job.target.name} cannot be tried through a command, nor by `{EMULATOR}`",
            why="a trial is a program that an operating system starts, and this target has none",
            fix="get schedules of others with `edgetrain cache pull URL`; targets with Linux can be tuned",
        )
    find_compiler(static_triple(triple))
    return runner_of(text, triple)


def device_id(runner: Runner) -> str:
    """16 hex digits that stay the same for who uses the same command on this machine, and name nobody."""
    return hashlib.sha256(f"edgetrain {machine_id()} {runner.text}".encode()).hexdigest()[:16]


def _lessons(kernels: Sequence[TunedKernel]) -> list[TunedKernel]:
    """The kernels with those trials only that an emulator can be believed."""
    return [
        dataclasses.replace(k, trials=tuple(t for t in k.trials if t.outcome.status not in _NO_LESSONS))
        for k in kernels
    ]


def _row(plain: CompiledJob, kernel: TunedKernel) -> DeviceRow:
    calls = [op for op in plain.graph.functions[STEP] if op.kernel == kernel.symbol]
    outcomes = [trial.outcome for trial in kernel.trials]
    default_s = min((outcome.default_seconds for outcome in outcomes if outcome.is_good), default=0.0)
    best = kernel.best
    rule_schedule = plain.compiled.schedules[kernel.symbol].choice.schedule
    return DeviceRow(
        name=calls[0].source or kernel.symbol,
        symbol=kernel.symbol,
        calls=len(calls),
        source=best.source if best is not None else RULE,
        schedule=str(best.schedule if best is not None else rule_schedule),
        seconds=best.outcome.default_seconds if best is not None else default_s,
        tuned_seconds=best.outcome.seconds if best is not None else default_s,
        largest_error=max((o.largest_error for o in outcomes if o.against), default=0.0),
        outcomes=dict(sorted(Counter(outcome.status for outcome in outcomes).items())),
        failure=kernel.failure,
    )
