"""Seconds of a model's kernels on this machine, to plan with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edgetrain.errors import UsageError
from edgetrain.files.scratch import scratch_folder
from edgetrain.pipeline.job import NO_LIMIT, Job, encrypts_pages
from edgetrain.pipeline.stages import CompiledJob
from edgetrain.program.build import build_program
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.profile import profile
from edgetrain.run.engines.synthetic import fill_synthetic


def require_here(job: Job) -> None:
    """Raises `UsageError` unless the target is this machine: nothing else can be measured."""
    if not job.target.is_host:
        raise UsageError(
            f"kernels for {job.target.name} cannot be measured here",
            why="programs run on this machine only",
            fix="leave --calibrate out, or plan for `--target host`",
        )


def with_measured_times(compiled: CompiledJob) -> CompiledJob:
    """The job planning with what each of its kernels takes on this machine."""
    with profiling_engine(compiled) as engine:
        return compiled.asking(op_seconds=profile(engine, compiled.graph))


@contextlib.contextmanager
def profiling_engine(compiled: CompiledJob) -> Iterator[LocalEngine]:
    """The program that counts each kernel's seconds, without a budget, on made-up data. Needs compiled kernels."""
    job = compiled.job
    plan = compiled.asking(budget=NO_LIMIT).plan().plan
    program = build_program(
        compiled.compiled, plan, job.device, cache=job.cache, profile=True, encrypts_pages=encrypts_pages(job)
    )
    threads = job.threads or job.device.codegen.cores
    with (
        scratch_folder("profile") as pages,
        LocalEngine(program, threads=threads, page_directory=Path(pages)) as engine,
    ):
        fill_synthetic(engine, program.graph, loss=job.recipe.train.loss, seed=0)
        yield engine
