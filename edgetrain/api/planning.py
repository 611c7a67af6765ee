"""`edgetrain.plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgetrain.api.models import budget_of, export, is_named, original_of, python_recipe, recipe_of_module, write_model
from edgetrain.api.told import warn
from edgetrain.files.scratch import scratch_folder
from edgetrain.frameworks.torch_inputs import is_torch_module, sample_rows
from edgetrain.pipeline.advice import plan_or_advise
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.resolve import resolve_without_data
from edgetrain.pipeline.source import is_model
from edgetrain.pipeline.stages import compile_job
from edgetrain.planner.explain import Explanation
from edgetrain.planner.explain import explain as explain_plan
from edgetrain.targets.profile import HOST, load_target


def plan(
    model: Any,
    *,
    sample: Any = None,
    target: str = HOST,
    budget: str | int | None = None,
    solver: str = "greedy",
    **overrides: object,
) -> Explanation:
    """What training would need: the plan's memory, time and energy. Compiles no kernels. Arguments as for `fit`.

    `sample`: what a PyTorch module takes, one sample without the batch, or a mapping of such by name.
    Raises `PlanInfeasibleError` with the smallest budget that works.
    """
    with scratch_folder("model") as scratch:
        if is_torch_module(model):
            plain = recipe_of_module(model, overrides, "")
            path = original_of(Path(scratch), plain.name)
            model, overrides = export(model, sample_rows(sample, plain), path, overrides)
        source = model if is_named(model) else write_model(model, Path(scratch))
        recipe = python_recipe(str(source), overrides, data_source="" if is_model(str(source)) else None)
        job = Job(recipe=recipe, target=load_target(target), budget=budget_of(budget), solver=solver, notify=warn)
        compiled = compile_job(resolve_without_data(job), with_kernels=False)
    return explain_plan(compiled.graph, plan_or_advise(compiled).plan)
