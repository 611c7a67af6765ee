"""Seconds of a model's kernels on this machine, to plan with."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgetrain.compiler.compile import Compiled
from edgetrain.errors import UsageError
from edgetrain.pipeline.job import NO_LIMIT, Job, codegen_of
from edgetrain.pipeline.stages import plan_stage
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


def with_measured_times(job: Job, compiled: Compiled) -> Job:
    """The job planning with what each of its kernels takes on this machine."""
    with profiling_engine(job, compiled) as engine:
        return dataclasses.replace(job, op_seconds=profile(engine, compiled.graph))


@contextlib.contextmanager
def profiling_engine(job: Job, compiled: Compiled) -> Iterator[LocalEngine]:
    """The program that keeps everything and counts each kernel's seconds, on made-up data. Needs `compiled` kernels."""
    kept = plan_stage(dataclasses.replace(job, budget=NO_LIMIT), compiled)
    program = build_program(compiled, kept, codegen_of(job.target), cache=job.cache, profile=True)
    threads = job.threads or job.target.codegen.cores
    with (
        tempfile.TemporaryDirectory(prefix="edgetrain-calibrate-") as pages,
        LocalEngine(program, threads=threads, page_directory=Path(pages)) as engine,
    ):
        fill_synthetic(engine, program.graph, loss=job.recipe.train.loss, seed=0)
        yield engine
