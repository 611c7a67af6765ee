"""Measures this machine: a few typical programs, kernel by kernel, and its disk, for plans with realistic times."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgetrain.cost.rates import KernelTime, fit_rates, total_seconds
from edgetrain.graph.ir import STEP, TrainGraph
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.profiling import profiling_engine
from edgetrain.pipeline.stages import compile_job
from edgetrain.recipes import recipe_for_model
from edgetrain.run.engines.profile import FunctionProfile, profile_function
from edgetrain.run.sensors.storage_probe import StorageSpeed, probe_storage
from edgetrain.targets.device import Rates
from edgetrain.targets.profile import MEASURED_BY, Target
from edgetrain.units import show_seconds

# Convolutions, batch norms and one-dimensional series at sizes from within the caches to beyond them.
PROGRAMS: tuple[tuple[str, int], ...] = (("digits-cnn", 32), ("voice-cnn", 16), ("watch-cnn", 32))
# Measured as well but not fitted: what the rates are worth for a model they have not seen.
CHECKED: tuple[str, int] = ("fashion-cnn", 16)
_ROUNDS = 15
_TURNS = 4  # of all programs; the quickest of each counts: other work on the machine comes and goes, and only adds
_MEASURED = ("flops_per_s", "memory_bytes_per_s", "launch_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTime:
    """One program's step: as its kernels took, as a whole, and as planned before and after calibrating."""

    name: str
    is_fitted: bool
    measured_s: float
    planned_before_s: float
    planned_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    target: Target
    programs: tuple[ProgramTime, ...]
    storage: StorageSpeed | None

    def to_json(self) -> dict[str, object]:
        return {
            "target": self.target.name,
            **{name: getattr(self.target.device.rates, name) for name in _MEASURED},
            "storage": dataclasses.asdict(self.storage) if self.storage is not None else None,
            "programs": [dataclasses.asdict(program) for program in self.programs],
        }

    def to_text(self) -> str:
        rates = self.target.device.rates
        lines = [
            f"arithmetic  {rates.flops_per_s / 1e9:.3g} GFLOP/s",
            f"memory      {rates.memory_bytes_per_s / 1e9:.3g} GB/s",
            f"launch      {rates.launch_s * 1e6:.3g} µs a kernel",
        ]
        if self.storage is not None:
            read, write = (rate / 1e6 for rate in (self.storage.read_bytes_per_s, self.storage.write_bytes_per_s))
            cached = "" if self.storage.is_direct else " (through the system's cache)"
            lines.append(f"storage     {read:.0f} MB/s read, {write:.0f} MB/s written{cached}")
        lines += ["", f"{'one step of':<14} {'measured':>10} {'planned':>10} {'before':>10}"]
        for program in self.programs:
            times = (program.measured_s, program.planned_s, program.planned_before_s)
            row = f"{program.name:<14} " + " ".join(f"{show_seconds(seconds):>10}" for seconds in times)
            lines.append(row if program.is_fitted else f"{row}  (not used for the rates)")
        return "\n".join(lines) + "\n"


def calibrate(job: Job, *, name: str, today: str, folder: Path, inform: Callable[[str], None]) -> CalibrationReport:
    """The host's target under that name with measured rates; takes a minute or two, most of it compiling.

    `job` says target, threads and cache; its recipe is not looked at. `folder` is on the disk to measure.
    Raises as compiling and running do.
    """
    measured: dict[str, tuple[Sequence[KernelTime], float]] = {}
    for turn in range(_TURNS):
        for model, batch in (*PROGRAMS, CHECKED):
            if turn == 0:
                inform(f"measuring {model}")
            found = measure_program(job, model, batch)
            measured[model] = min(measured.get(model, found), found, key=lambda times: times[1])
    inform("measuring the disk")
    storage = probe_storage(folder) if job.device.storage is not None else None
    before = job.device.rates
    rates = fit_rates({model: measured[model][0] for model, _ in PROGRAMS}, before)
    programs = tuple(
        ProgramTime(
            name=model,
            is_fitted=model != CHECKED[0],
            measured_s=step_s,
            planned_before_s=total_seconds(before, kernels),
            planned_s=total_seconds(rates, kernels),
        )
        for model, (kernels, step_s) in measured.items()
    )
    target = with_measured(job.target, rates, storage, name=name, today=today)
    return CalibrationReport(target=target, programs=programs, storage=storage)


def measure_program(job: Job, model: str, batch: int) -> tuple[Sequence[KernelTime], float]:
    """What each kernel of a training step takes, and what a step takes as a whole."""
    recipe = recipe_for_model(f"zoo:{model}", (f"train.batch={batch}",), needs_data=False)
    job = dataclasses.replace(job, recipe=recipe)
    compiled = compile_job(job)
    with profiling_engine(compiled) as engine:
        found = profile_function(engine, compiled.graph, STEP, rounds=_ROUNDS)
    return kernel_times(compiled.graph, STEP, found), found.call_s


def kernel_times(graph: TrainGraph, function: str, found: FunctionProfile) -> Sequence[KernelTime]:
    """The kernels with their times; what a call takes beside them is shared out, so that they add up to it."""
    total_s = sum(found.op_seconds.values())
    share = found.call_s / total_s if total_s else 1.0
    return tuple(
        KernelTime(flops=op.flops, moved_bytes=graph.bytes_moved(op), seconds=share * found.op_seconds[op.name])
        for op in graph.functions[function]
    )


def with_measured(target: Target, rates: Rates, storage: StorageSpeed | None, *, name: str, today: str) -> Target:
    """The target with measured rates; what was not measured, energy above all, stays what it was."""
    source = f"{MEASURED_BY}, {today}"
    sources = {**target.sources, **dict.fromkeys(_MEASURED, source)}
    found = target.device.storage
    if found is not None and storage is not None:
        found = dataclasses.replace(
            found,
            read_bytes_per_s=storage.read_bytes_per_s,
            write_bytes_per_s=storage.write_bytes_per_s,
            latency_s=storage.latency_s,
        )
        sources |= {f"storage.{key}": source for key in ("read_bytes_per_s", "write_bytes_per_s", "latency_s")}
    summary = target.summary if name == target.name else f"{target.summary} and measured as `{name}`"
    measured = target.with_device(name=name, rates=rates, storage=found)
    return dataclasses.replace(measured, name=name, summary=summary, sources=sources)
