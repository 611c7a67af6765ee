"""`edgetrain plan`: does training fit a budget, and what does it cost. Compiles no kernels."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgetrain.cli.command import Flag, Verb, to_path
from edgetrain.cli.console import Console
from edgetrain.cli.request import (
    BUDGET,
    CO2,
    DEADLINE,
    DEFAULT_RECIPE,
    DUMP,
    ENERGY,
    OVERRIDES_TEXT,
    PLANNING_FLAGS,
    SOURCE_WORDS,
    TARGET,
    job_of,
    split_words,
)
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.errors import DataError, UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.regular_file import require_regular
from edgetrain.pipeline.source import recipe_of
from edgetrain.units import show_bytes, show_seconds

if TYPE_CHECKING:
    from edgetrain.drawing.scene import Scene
    from edgetrain.pipeline.stages import CompiledJob, PlannedJob
    from edgetrain.planner.explain import Explanation
    from edgetrain.planner.sweep import SweepPoint
    from edgetrain.report.page import Page

_INSTANCE_TIME_LIMIT_S = 50.0


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.pipeline.advice import plan_or_advise
    from edgetrain.pipeline.profiling import require_here, with_measured_times
    from edgetrain.pipeline.resolve import resolve_without_data
    from edgetrain.pipeline.stages import compile_job, dump_stages
    from edgetrain.planner.explain import explain
    from edgetrain.planner.sweep import sweep_text, sweep_to_json

    if arguments.instance is not None:
        return _solve_instance(arguments, console)
    source, overrides = split_words(arguments.words)
    recipe = recipe_of(source or DEFAULT_RECIPE, overrides, needs_data=False)
    for path in (arguments.png, arguments.html):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"there is no folder `{path.parent}` for `{path.name}`", fix="make it, or name another")
    with StageProgress(console) as stages:
        job = resolve_without_data(job_of(arguments, recipe, console, progress=stages))
        if arguments.calibrate:
            require_here(job)
        compiled = compile_job(job, with_kernels=arguments.calibrate)
        if arguments.calibrate:
            compiled = with_measured_times(compiled)
        planned = None if arguments.compare else plan_or_advise(compiled)
        smallest_bytes = None if planned is None else compiled.smallest_bytes()
    if planned is None:
        return _compare(arguments, compiled, console)
    if arguments.dump is not None:
        dump_stages(arguments.dump, planned)
    explanation = explain(
        compiled.graph,
        planned.plan,
        carbon=job.carbon,
        is_timed=arguments.calibrate,
        smallest_bytes=smallest_bytes,
        traffic=compiled.compiled.traffic,
    )
    points = _sweep(compiled, console) if arguments.sweep else ()
    text = explanation.to_text() + (f"\n{sweep_text(points)}" if points else "")
    _draw_plan(arguments, compiled, planned, explanation, points, text, console)
    if not console.as_json:
        console.data(text)
        return 0
    swept = {"sweep": sweep_to_json(points)} if points else {}
    console.data(json.dumps({**json.loads(explanation.to_json()), **swept}, indent=1) + "\n")
    return 0


def _sweep(compiled: CompiledJob, console: Console) -> Sequence[SweepPoint]:
    points = []
    for point in compiled.sweep():
        console.say(f"{show_bytes(point.budget_bytes)}: {show_seconds(point.seconds)} a step")
        points.append(point)
    return points


def _draw_plan(
    arguments: argparse.Namespace,
    compiled: CompiledJob,
    planned: PlannedJob,
    explanation: Explanation,
    points: Sequence[SweepPoint],
    text: str,
    console: Console,
) -> None:
    if arguments.png is None and arguments.html is None:
        return
    graph, plan, job = planned.compiled.graph, planned.plan, planned.job
    if arguments.html is not None:
        from edgetrain.report.operations import operations
        from edgetrain.report.plan_page import plan_page

        storage, accumulate = job.device.storage, job.recipe.train.accumulate
        found = operations(graph, plan, compiled.costs, storage, accumulate=accumulate)
        _write_page(arguments.html, plan_page(graph, plan, explanation, found, sweep=points, text=text), console)
    if arguments.png is not None:
        from edgetrain.planner.memory_timeline import memory_timeline
        from edgetrain.planner.picture import draw_sweep, draw_timeline

        scenes = [draw_timeline(memory_timeline(graph, plan), title=f"memory of one training step: {graph.name}")]
        if points:
            scenes.append(draw_sweep(points, budget_bytes=plan.budget.memory_bytes))
        _write_picture(arguments.png, scenes, console)


def _write_page(path: Path, page: Page, console: Console) -> None:
    from edgetrain.report.page import to_html

    with replaced_file(path, is_shared=True) as file:
        file.write(to_html(page).encode())
    console.say(f"drew {path}")


def _write_picture(path: Path, scenes: Sequence[Scene], console: Console) -> None:
    from edgetrain.drawing.raster import to_png
    from edgetrain.drawing.scene import below

    with replaced_file(path, is_shared=True) as file:
        file.write(to_png(functools.reduce(below, scenes)))
    console.say(f"drew {path}")


def _compare(arguments: argparse.Namespace, compiled: CompiledJob, console: Console) -> int:
    from edgetrain.planner.compare import comparison_text
    from edgetrain.planner.comparison_picture import draw_comparison
    from edgetrain.report.plan_page import solvers_page

    rows = []
    for row in compiled.compare():
        console.say(f"{row.solver}: {show_seconds(row.planning_s)}")
        rows.append(row)
    if arguments.html is not None:
        page = solvers_page(rows, name=compiled.graph.name, text=comparison_text(rows))
        _write_page(arguments.html, page, console)
    if arguments.png is not None:
        title = f"one training step by solver: {compiled.graph.name}"
        _write_picture(arguments.png, [draw_comparison(rows, title=title)], console)
    as_json = json.dumps([row.to_json() for row in rows], indent=1) + "\n"
    console.data(as_json if console.as_json else comparison_text(rows))
    return 0


def _solve_instance(arguments: argparse.Namespace, console: Console) -> int:
    """Every case of an `edgetrain.plan-instance/1` or `edgetrain.placement-instance/1` file, in order."""
    from edgetrain.planner.placement import instance_file as placements
    from edgetrain.planner.references.solve_instance import read_instance, solve_instance

    path: Path = arguments.instance
    require_regular(path, DataError)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the plan instance `{path}`", why=str(error)) from error
    time_limit_s = arguments.time_limit or _INSTANCE_TIME_LIMIT_S
    solver = arguments.solver or "milp"
    answers: list[Mapping[str, object]] = []
    if f'"{placements.FORMAT}"' in text:
        solved = (placements.solve_placement(p, time_limit_s=time_limit_s) for p in placements.read_placements(text))
    else:
        solved = (solve_instance(case, solver=solver, time_limit_s=time_limit_s) for case in read_instance(text))
    for answer in solved:
        answers.append(answer)
        console.say(f"{answer['memory_bytes']} bytes: {answer['objective']} (gap {answer['gap']})")
    console.data(json.dumps(answers, indent=1) + "\n")
    return 0


VERB = Verb(
    name="plan",
    summary="say whether training fits a budget, and what it costs",
    description=(
        "Plans a training step without compiling or running it. Shows the peak of memory and the tensors that hold it, "
        "what is recomputed or paged, and the modelled time and energy. Where nothing fits (exit code 3), it names the "
        "smallest budget that works.\n\n" + OVERRIDES_TEXT
    ),
    words=SOURCE_WORDS,
    flags=(
        TARGET,
        BUDGET,
        DEADLINE,
        ENERGY,
        CO2,
        *PLANNING_FLAGS,
        Flag(name="--compare", help="plan with every solver and print a table"),
        Flag(name="--calibrate", help="time each kernel first, and plan with these times; only for this machine"),
        Flag(name="--sweep", help="also plan for budgets from the smallest that works to keeping everything"),
        Flag(
            name="--png",
            metavar="FILE",
            parse=to_path,
            help="draw memory over the step, and the sweep or the comparison; needs `pip install 'edgetrain[plot]'`",
        ),
        Flag(
            name="--html",
            metavar="FILE",
            parse=to_path,
            help="the same as a web page, with values under the pointer",
        ),
        Flag(
            name="--instance",
            metavar="FILE",
            parse=to_path,
            help=(
                "solve every case of an edgetrain.plan-instance/1 (or, for two devices, placement-instance/1) file "
                "instead, and print a JSON list"
            ),
        ),
        DUMP,
    ),
    examples=(
        "edgetrain plan digits --budget 800kB",
        "edgetrain plan digits train.batch=4 --target cortex-m7",
        "edgetrain plan digits --budget 1MB --json",
        "edgetrain plan digits --budget 800kB --compare",
        "edgetrain plan digits --budget 800kB --sweep --html plan.html",
    ),
    run=run,
)
