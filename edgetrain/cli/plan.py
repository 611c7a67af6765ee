"""`edgetrain plan`: does it fit, and at what price. Compiles no kernels."""

from __future__ import annotations

import argparse

from edgetrain.cli.command import Verb
from edgetrain.cli.console import Console
from edgetrain.cli.request import (
    BUDGET,
    DEADLINE,
    DEFAULT_RECIPE,
    DUMP,
    ENERGY,
    OVERRIDES_TEXT,
    SOLVER,
    SOURCE_WORDS,
    TARGET,
    job_of,
    recipe_of,
    split_words,
)
from edgetrain.cli.stages import Stages


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain import pipeline
    from edgetrain.plan.explain import explain

    source, overrides = split_words(arguments.words)
    recipe = recipe_of(source or DEFAULT_RECIPE, overrides, needs_data=False)
    with Stages(console) as stages:
        job = job_of(arguments, recipe, console, progress=stages)
        compiled = pipeline.compile_stage(job, with_kernels=False)
    plan = pipeline.plan_stage(job, compiled)
    if arguments.dump is not None:
        pipeline.dump_stages(arguments.dump, job, compiled, plan, None, None)
    explanation = explain(compiled.graph, plan)
    console.data(explanation.to_json() if console.as_json else explanation.to_text())
    return 0


VERB = Verb(
    name="plan",
    summary="say whether training fits a budget, and what it costs",
    description=(
        "Plans a training step without compiling or running it: the peak and who holds it, what is recomputed or "
        "paged, and the modelled time and energy. Where nothing fits (exit code 3) it names the smallest budget that "
        "does.\n\n" + OVERRIDES_TEXT
    ),
    words=SOURCE_WORDS,
    flags=(TARGET, BUDGET, DEADLINE, ENERGY, SOLVER, DUMP),
    examples=(
        "edgetrain plan digits --budget 800kB",
        "edgetrain plan digits train.batch=4 --target cortex-m7",
        "edgetrain plan digits --budget 1MB --json",
    ),
    run=run,
)
