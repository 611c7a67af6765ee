"""`edgetrain check`: does this model train correctly on this machine."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from edgetrain.cli.command import Verb
from edgetrain.cli.console import Console
from edgetrain.cli.request import BUDGET, OVERRIDES_TEXT, TARGET, job_of, split_words
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.errors import PlanInfeasibleError, UsageError
from edgetrain.files.scratch import scratch_folder
from edgetrain.pipeline.source import recipe_of
from edgetrain.units import Bytes, show_bytes

if TYPE_CHECKING:
    from edgetrain.pipeline.stages import CompiledJob, PlannedJob
    from edgetrain.planner.plan import Plan
    from edgetrain.recipes import Recipe

_BATCH = 4  # rows of made-up data, unless train.batch= says otherwise
# Where between the smallest possible plan and keeping everything the planned run is tried, tightest first.
_SHARES = (0.5, 0.75, 0.9)
_FAILED = 1
_COMPARING = "comparing gradients with finite differences"


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.pipeline.job import NO_LIMIT
    from edgetrain.pipeline.resolve import resolve_without_data
    from edgetrain.pipeline.stages import compile_job
    from edgetrain.run.checks.check import CheckReport, Finding, Probe, check_gradients, check_plan, check_steps
    from edgetrain.run.checks.roles_check import check_roles

    source, overrides = split_words(arguments.words)
    if source is None:
        raise UsageError("`edgetrain check` needs a model or a recipe", fix=f"like `{VERB.examples[0]}`")
    recipe = plain_sgd(recipe_of(source, overrides, needs_data=False), overrides)
    with StageProgress(console) as stages:
        compiled = compile_job(resolve_without_data(job_of(arguments, recipe, console, progress=stages)))
    # Without a budget the default planner recomputes what costs little, too: that is a plan to check, not the measure.
    keep_all = compiled.asking(budget=NO_LIMIT, solver="keep-all").plan()
    tight = tight_plan(compiled, keep_all.plan)
    facts = compiled.compiled.facts
    trained = tuple(facts["trained"])
    imported = f"{facts['parameters']:,} parameters, {len(trained)} tensors trained, every gradient is there"
    with scratch_folder("check") as pages:
        probe = Probe(
            program=keep_all.build().program,
            loss=recipe.train.loss,
            trained=trained,
            threads=compiled.job.device.codegen.cores,
            page_directory=Path(pages),
            seed=recipe.train.seed,
        )
        console.say("taking steps")
        steps, saved = check_steps(probe)
        with StageProgress(console) as stages:
            stages(_COMPARING, 0, 0)
            gradients = check_gradients(probe, lambda done, total: stages(_COMPARING, done, total))
        findings = [Finding(name="import", is_ok=True, text=imported), steps, gradients]
        findings.append(check_roles(probe, compiled.compiled.model))
        if tight is None:
            kept = show_bytes(keep_all.plan.peak_bytes)
            text = f"nothing to try: no plan needs less than {kept}, which keeps everything"
            findings.append(Finding(name="plan", is_ok=True, text=text))
        else:
            description = f"{show_bytes(tight.plan.peak_bytes)} instead of {show_bytes(keep_all.plan.peak_bytes)}"
            findings.append(check_plan(probe, tight.build().program, saved, description))
    report = CheckReport(model=recipe.name, findings=tuple(findings))
    console.data(report.to_json() if console.as_json else report.to_text())
    return 0 if report.is_ok else _FAILED


def plain_sgd(recipe: Recipe, overrides: tuple[str, ...]) -> Recipe:
    """The recipe with an optimizer that shows the gradient as it is, and a small batch unless one was asked for."""
    has_batch = any(text.startswith("train.batch=") for text in overrides)
    train = dataclasses.replace(
        recipe.train,
        optimizer="sgd",
        momentum=0.0,
        weight_decay=0.0,
        clip_norm=0.0,
        accumulate=1,
        batch=recipe.train.batch if has_batch else _BATCH,
    )
    return dataclasses.replace(recipe, train=train)


def tight_plan(compiled: CompiledJob, keep_all: Plan) -> PlannedJob | None:
    """A plan for the budget asked for, else one well below `keep_all`; None when nothing smaller is possible.

    Raises `PlanInfeasibleError` for a budget that was asked for and does not work.
    """
    from edgetrain.planner.plan import Budget

    if compiled.job.budget.memory_bytes is not None:
        return compiled.plan()
    least_bytes = _least_bytes(compiled)
    for share in _SHARES:
        budget_bytes = Bytes(round(least_bytes + share * (keep_all.needed_bytes - least_bytes)))
        if budget_bytes >= keep_all.needed_bytes:
            break
        try:
            return compiled.asking(budget=Budget(memory_bytes=budget_bytes)).plan()
        except PlanInfeasibleError:
            continue
    return None


def _least_bytes(compiled: CompiledJob) -> int:
    """What the solver could hold at best, fragmentation left out."""
    from edgetrain.pipeline.job import storage_of
    from edgetrain.planner.make_plan import least_bytes

    job = compiled.job
    return least_bytes(
        compiled.graph, compiled.costs, solver=job.solver, storage=storage_of(job), beside=compiled.beside
    )


VERB = Verb(
    name="check",
    summary="test whether a model trains correctly on this machine",
    description=(
        "Compiles the model, takes three steps on synthetic data, compares its gradients with finite differences, what "
        "a step changes with what the file says that it may, and its steps under a tight memory plan with those "
        "without one, bit for bit. Exit code 4 names every op that cannot be imported or differentiated, 1 means that "
        "a number was wrong, or that too few gradients could be verified.\n\n" + OVERRIDES_TEXT
    ),
    words="RECIPE|MODEL.onnx [key=value ...]",
    least_words=1,
    flags=(TARGET, BUDGET),
    examples=(
        "edgetrain check digits",
        "edgetrain check digits train.batch=32 --budget 800kB",
        "edgetrain check digits --target opencl",
    ),
    run=run,
)
