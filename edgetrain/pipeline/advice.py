"""Where no plan fits: settings that would fit, each planned for this model."""

from __future__ import annotations

import dataclasses

from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.errors import PlanInfeasibleError, WayOut
from edgetrain.graph import ir as graph_ir
from edgetrain.pipeline.job import Job, effective_budget, encrypts_pages, say_nothing, storage_of, threads_of
from edgetrain.pipeline.stages import CompiledJob, PlannedJob, compile_job
from edgetrain.planner.make_plan import CostsByFunction
from edgetrain.planner.ways_out import Variant, find_ways_out
from edgetrain.program.process_memory import program_memory
from edgetrain.progress import silent


def plan_or_advise(compiled: CompiledJob) -> PlannedJob:
    """The job planned; where no plan fits, the error says what would: each way out planned for this very model."""
    job = compiled.job
    try:
        return compiled.plan()
    except PlanInfeasibleError as error:
        if error.smallest_bytes is None:
            raise
        job.inform("nothing fits; looking for settings that do")
        raise error.with_ways_out(_ways_out(job, error.smallest_bytes)) from None


def _ways_out(job: Job, smallest_bytes: int) -> tuple[WayOut, ...]:
    recipe = job.recipe

    def build(variant: Variant) -> tuple[graph_ir.TrainGraph, CostsByFunction]:
        train = dataclasses.replace(recipe.train, batch=variant.batch, accumulate=variant.accumulate)
        update = dataclasses.replace(recipe.update, mode=variant.update_mode)
        changed = dataclasses.replace(job, recipe=dataclasses.replace(recipe, train=train, update=update))
        graph = compile_job(dataclasses.replace(changed, progress=None), with_kernels=False).graph
        return graph, analytic_costs_by_function(graph, job.device.rates)

    return find_ways_out(
        Variant(batch=recipe.train.batch, accumulate=recipe.train.accumulate, update_mode=recipe.update.mode),
        effective_budget(dataclasses.replace(job, notify=say_nothing)),
        smallest_bytes,
        build,
        device=job.target.name,
        device_bytes=job.device.memory_bytes,
        solver=job.solver,
        storage=storage_of(job),
        beside=lambda graph: program_memory(graph, job.device, threads_of(job), encrypts_pages=encrypts_pages(job)),
        progress=job.progress or silent,
    )
