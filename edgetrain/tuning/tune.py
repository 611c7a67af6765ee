"""Better schedules for a model's kernels: searched, tried in the real step, kept in the user's cache."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from edgetrain.compiler.measure.runners import Runner
from edgetrain.compiler.schedules import CACHE, RULE, ScheduleChoice, ScheduleStores
from edgetrain.compiler.search.entries import entry_of
from edgetrain.compiler.search.request import TunedKernel, TuneRequest, deep_cost_model, search_schedules
from edgetrain.compiler.search.trials import Origin
from edgetrain.compiler.tuner_view import schedule_target
from edgetrain.errors import DeviceError
from edgetrain.graph.ir import STEP
from edgetrain.pipeline.job import Job, compile_request
from edgetrain.pipeline.profiling import profiling_engine
from edgetrain.pipeline.stages import CompiledJob, compile_job
from edgetrain.run.engines.profile import FunctionProfile, profile_function
from edgetrain.targets.host import machine_id
from edgetrain.tuning.report import KernelRow, TuningReport
from edgetrain_tuner.cache.entry import Entry, Target

_TURNS = 4  # of both programs; the quickest of each kernel counts: other work on the machine only adds
_ROUNDS = 5
_LOST = 1.02  # a kernel that takes this much longer in the step than the rule's is not kept
_LEAST_SHARE = 0.002  # of a step; what is less is not worth a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much the search may spend: trials, or seconds. A `deep` one asks MetaSchedule too."""

    trials: int | None = None
    seconds: float | None = None
    deep: bool = False


def tune(job: Job, allowance: Allowance, *, today: str) -> TuningReport:
    """Searches, tries the winners in the real step, and stores what was learned.

    Raises `DeviceError` for a target that is not this machine: nothing can be measured for it here; and for a GPU.
    """
    if not job.target.is_host:
        raise DeviceError(
            f"schedules for {job.target.name} cannot be measured here",
            why="a schedule has to be timed on the device it is for",
            fix="reach the device with `--runner 'ssh USER@DEVICE'`, tune on the device itself, or get schedules of "
            "others with `edgetrain cache pull URL`; `--runner emulator` checks schedules without times",
        )
    if job.device.gpu is not None:
        raise DeviceError(
            f"kernels for {job.target.name} cannot be tuned",
            why="they have TVM's schedules for GPUs, which have nothing to choose",
            fix="tune for this machine's processor, with `--target host`",
        )
    stores, target = keeping(job)
    plain = compile_job(dataclasses.replace(job, schedules={}))
    (before,) = _profiles([plain])
    weights = weights_of(plain, before.op_seconds)
    request = search_request(job, weights, allowance)
    found = search_schedules(request, job.progress).kernels
    choices = _choices(job, plain, found)
    tuned = compile_job(dataclasses.replace(job, schedules=choices))
    seconds, tuned_seconds, step_s, tuned_step_s = _side_by_side(plain, tuned)
    lost = {s for s in choices if tuned_seconds.get(s, 0.0) > _LOST * seconds.get(s, math.inf)}
    origin = Origin(machine=machine_id(), today=today, model=job.recipe.name, tool=job.tool)
    entries = list(entries_of_trials(target, found, lost, origin))
    with stores.opened() as levels:
        levels.user.put_all(entries)
    rows = _rows(job, plain, tuned, seconds, tuned_seconds, lost, found)
    return TuningReport(
        model=job.recipe.name,
        target=job.target.name,
        rates_basis=job.target.rates_basis,
        trials=sum(len(kernel.trials) for kernel in found),
        step_seconds=step_s,
        tuned_step_seconds=tuned_step_s,
        entries=len(entries),
        deep=request.deep,
        kernels=rows,
    )


def keeping(job: Job) -> tuple[ScheduleStores, Target]:
    """Where results are kept, and under which target. Raises `DeviceError` where they cannot be."""
    if job.stores is None:
        raise DeviceError("there is no schedule cache to keep results in", fix="set XDG_CACHE_HOME to a folder")
    target = schedule_target(job.device.codegen)
    if target is None:
        raise DeviceError(f"schedules for {job.device.codegen.triple or 'this machine'} are not kept")
    return job.stores, target


def search_request(
    job: Job, weights: Mapping[str, float], allowance: Allowance, runner: Runner | None = None
) -> TuneRequest:
    assert job.stores is not None
    return TuneRequest(
        compile=compile_request(job, with_kernels=False),
        threads=job.threads or job.device.codegen.cores,
        weights=weights,
        trials=allowance.trials,
        seconds=allowance.seconds,
        stores=job.stores,
        deep=deep_cost_model() if allowance.deep else "",
        runner=runner,
    )


def weights_of(compiled: CompiledJob, op_seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds of a step by kernel, of those that are worth a trial."""
    seconds = by_kernel(compiled, op_seconds)
    total_s = sum(seconds.values())
    return {symbol: s for symbol, s in seconds.items() if s >= _LEAST_SHARE * total_s}


def by_kernel(compiled: CompiledJob, op_seconds: Mapping[str, float]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for op in compiled.graph.functions[STEP]:
        seconds[op.kernel] = seconds.get(op.kernel, 0.0) + op_seconds[op.name]
    return seconds


def _choices(job: Job, plain: CompiledJob, found: Sequence[TunedKernel]) -> dict[str, ScheduleChoice]:
    """The winners; for a kernel that was not searched, what held on this machine before."""
    assert job.stores is not None
    target = schedule_target(job.device.codegen)
    assert target is not None
    searched = {kernel.symbol for kernel in found if not kernel.failure}
    workloads = {
        symbol: record.workload for symbol, record in plain.compiled.schedules.items() if symbol not in searched
    }
    choices = dict.fromkeys(plain.compiled.schedules, ScheduleChoice())
    choices |= job.stores.choose(workloads, target, machine=machine_id()).choices
    choices |= {
        kernel.symbol: ScheduleChoice(schedule=kernel.best.schedule, source=kernel.best.source, level="user")
        for kernel in found
        if kernel.best is not None
    }
    return choices


def _profiles(programs: Sequence[CompiledJob]) -> list[FunctionProfile]:
    """A profile of each program's step, all of them in turns; the quickest of the turns counts."""
    best: list[FunctionProfile | None] = [None] * len(programs)
    with ExitStack() as stack:
        engines = [stack.enter_context(profiling_engine(compiled)) for compiled in programs]
        for _ in range(_TURNS):
            for number, (engine, compiled) in enumerate(zip(engines, programs, strict=True)):
                found = profile_function(engine, compiled.graph, STEP, rounds=_ROUNDS)
                best[number] = _quicker(best[number], found)
    return [found for found in best if found is not None]


def _quicker(one: FunctionProfile | None, other: FunctionProfile) -> FunctionProfile:
    if one is None:
        return other
    return FunctionProfile(
        op_seconds={name: min(seconds, other.op_seconds[name]) for name, seconds in one.op_seconds.items()},
        call_s=min(one.call_s, other.call_s),
    )


def _side_by_side(
    plain: CompiledJob, tuned: CompiledJob
) -> tuple[Mapping[str, float], Mapping[str, float], float, float]:
    """Seconds of each kernel in the step as the rules have it and as it was tuned, and of the whole steps."""
    if plain.compiled.identity(plain.job.target.name) == tuned.compiled.identity(plain.job.target.name):
        (found,) = _profiles([plain])
        seconds = by_kernel(plain, found.op_seconds)
        return seconds, seconds, found.call_s, found.call_s
    before, after = _profiles([plain, tuned])
    return (
        by_kernel(plain, before.op_seconds),
        by_kernel(tuned, after.op_seconds),
        before.call_s,
        after.call_s,
    )


def entries_of_trials(target: Target, found: Sequence[TunedKernel], lost: set[str], origin: Origin) -> Iterator[Entry]:
    """An entry for every trial: winners, losers and failures."""
    for kernel in found:
        for trial in kernel.trials:
            is_best = kernel.best is not None and kernel.best.schedule == trial.schedule
            is_kept = is_best and kernel.symbol not in lost
            yield entry_of(kernel.workload, target, trial.schedule, trial.outcome, is_kept=is_kept, origin=origin)


def _rows(
    job: Job,
    plain: CompiledJob,
    tuned: CompiledJob,
    seconds: Mapping[str, float],
    tuned_seconds: Mapping[str, float],
    lost: set[str],
    found: Sequence[TunedKernel],
) -> tuple[KernelRow, ...]:
    trials = {kernel.symbol: len(kernel.trials) for kernel in found}
    ops = plain.graph.functions[STEP]
    rows = []
    for symbol, took_s in seconds.items():
        calls = [op for op in ops if op.kernel == symbol]
        flops = sum(op.flops for op in calls)
        moved = sum(plain.graph.bytes_moved(op) for op in calls)
        roofline_s = max(flops / job.device.rates.flops_per_s, moved / job.device.rates.memory_bytes_per_s)
        choice = tuned.compiled.schedules[symbol].choice
        is_kept = symbol not in lost and choice.source != RULE
        rows.append(
            KernelRow(
                name=calls[0].source or symbol,
                symbol=symbol,
                calls=len(calls),
                source=_source(choice) if is_kept else RULE,
                schedule=str(choice.schedule if is_kept else plain.compiled.schedules[symbol].choice.schedule),
                seconds=took_s,
                tuned_seconds=tuned_seconds[symbol] if is_kept else took_s,
                flops=flops,
                moved_bytes=moved,
                roofline_seconds=roofline_s,
                trials=trials.get(symbol, 0),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.tuned_seconds, row.symbol)))


def _source(choice: ScheduleChoice) -> str:
    return f"{choice.source} ({choice.level})" if choice.source == CACHE else choice.source
