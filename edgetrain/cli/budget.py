"""`edgetrain budget`: what a running `fit` may use, shown and changed while it runs."""

from __future__ import annotations

import argparse
import json
import shlex
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgetrain.cli.command import Flag, Verb
from edgetrain.cli.console import Console
from edgetrain.errors import DataError, DeviceError, PlanInfeasibleError, UsageError
from edgetrain.units import Bytes, parse_bytes, parse_seconds, show_bytes, show_bytes_both, show_bytes_up, show_seconds

if TYPE_CHECKING:
    from edgetrain.run.limits.exchange import LiveState, Request

_PATIENCE_S = 60.0
_PATIENCE_TO_SHOW_S = 5.0  # then what the run said last is good enough


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.run.limits.exchange import Request, ask, read_state

    folder = find_run(arguments.words[0])
    state = read_state(folder)

    def waiting() -> None:
        console.say("waiting for the run to finish its step")

    if len(arguments.words) == 1:
        question = Request(id=uuid.uuid4().hex)
        try:
            state = ask(folder, question, patience_s=arguments.timeout or _PATIENCE_TO_SHOW_S, waiting=waiting)
        except DeviceError:
            console.warn(f"the run is busy; this was its state after step {state.step}")
    else:
        budget = parse_bytes(arguments.words[1])
        console.say(f"{folder}: budget {show_bytes_both(budget)}")
        request = _request(folder, state, budget, console)
        state = ask(folder, request, patience_s=arguments.timeout or _PATIENCE_S, waiting=waiting)
        if state.refusal:
            raise DeviceError(
                f"the run stays inside {_show_budget(state.budget_bytes)}",
                why=state.refusal,
                fix="correct that and ask again; the run continues unchanged",
            )
    console.data(json.dumps(_as_json(folder, state)) + "\n" if console.as_json else state_text(folder, state))
    return 0


def find_run(word: str, runs: Path | None = None) -> Path:
    """The run folder of that path or name. Raises `UsageError` naming the runs that could be meant."""
    from edgetrain.run.files.folders import RUNS
    from edgetrain.run.limits.exchange import is_running

    runs = runs or RUNS
    for folder in (Path(word), runs / word):
        if folder.is_dir():
            return folder
    running = [str(folder) for folder in sorted(runs.glob("*")) if is_running(folder)]
    raise UsageError(
        f"there is no run `{word}`",
        why=f"running now: {', '.join(running)}" if running else f"nothing runs in `{runs}`",
        fix="give the run's folder, as `edgetrain fit` names it when it begins",
    )


def _request(folder: Path, state: LiveState, budget: Bytes, console: Console) -> Request:
    """Plans and links here, in this process: the run is not disturbed, least of all by a budget that is too small."""
    from edgetrain.compiler.compiled import Compiled
    from edgetrain.pipeline.job import Job
    from edgetrain.pipeline.stages import CompiledJob
    from edgetrain.planner.plan import Budget
    from edgetrain.run.files.folders import JobRecord
    from edgetrain.run.files.run_folder import RunFolder
    from edgetrain.run.files.trained import read_recipe
    from edgetrain.run.limits.exchange import Request
    from edgetrain.targets.profile import HOST, load_target

    compiled = Compiled(directory=Path(state.compiled_directory), key=state.compiled_key)
    if not compiled.directory.is_dir():
        raise DataError(
            f"the kernels of `{folder}` are no longer in the build cache",
            why=f"`{compiled.directory}` is gone",
            fix=f"stop the run, and go on with `edgetrain fit --resume --budget {show_bytes_up(budget)} --out "
            f"{shlex.quote(str(folder))}`",
        )
    stored = JobRecord.read(folder) or JobRecord(target=HOST, solver=Job.solver)
    job = Job(
        recipe=read_recipe(RunFolder(folder)),
        target=load_target(stored.target),
        budget=Budget(memory_bytes=budget, deadline_s=stored.deadline_s, energy_j=stored.energy_j),  # type: ignore[arg-type]
        solver=stored.solver,
        notify=console.warn,
        inform=console.say,
    )
    try:
        planned = CompiledJob(job=job, compiled=compiled).plan()
    except PlanInfeasibleError as error:
        unchanged = f"the run continues unchanged inside {_show_budget(state.budget_bytes)}"
        is_memory = stored.deadline_s is None and stored.energy_j is None
        raise PlanInfeasibleError(
            error.what, why=error.why, fix=f"ask for {'that much' if is_memory else 'more'}; {unchanged}"
        ) from error
    budget_bytes = planned.plan.budget.memory_bytes
    return Request(id=uuid.uuid4().hex, budget_bytes=budget_bytes, rung=planned.rung(), compiled_key=compiled.key)


def state_text(folder: Path, state: LiveState) -> str:
    """The run in five lines, its plans in a line each, the one that runs marked."""
    budget = _show_budget(state.budget_bytes)
    if state.limit_bytes is not None and state.limit_bytes != state.budget_bytes:
        budget += f", its share now {show_bytes(state.limit_bytes)}"
    lines = [
        f"run       {folder}, step {state.step} of {state.steps}",
        f"budget    {budget}",
        f"planned   {show_bytes(state.rung.planned_peak_bytes)}, {show_seconds(state.rung.planned_seconds)} a step",
        f"measured  {show_bytes(state.measured_peak_bytes)} since step {state.since_step}",
    ]
    for number, rung in enumerate(state.rungs):
        label = "rungs" if number == 0 else ""
        mark = "  <- runs" if rung == state.rung else ""
        size, seconds = show_bytes(rung.planned_peak_bytes), show_seconds(rung.planned_seconds)
        lines.append(f"{label:<8}  {size:>8}, {seconds} a step{mark}")
    return "\n".join(lines) + "\n"


def _show_budget(budget_bytes: int | None) -> str:
    return "no limit" if budget_bytes is None else show_bytes(budget_bytes)


def _as_json(folder: Path, state: LiveState) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "step": state.step,
        "steps": state.steps,
        "budget_bytes": state.budget_bytes,
        "limit_bytes": state.limit_bytes,
        "planned_peak_bytes": state.rung.planned_peak_bytes,
        "planned_seconds": state.rung.planned_seconds,
        "measured_peak_bytes": state.measured_peak_bytes,
        "since_step": state.since_step,
        "rungs": [
            {"planned_peak_bytes": r.planned_peak_bytes, "planned_seconds": r.planned_seconds} for r in state.rungs
        ],
    }


VERB = Verb(
    name="budget",
    summary="show or change the memory budget of a run while it runs",
    description=(
        "Without SIZE: shows the budget, the planned and measured memory of a running `fit`, and the plans that it can "
        "switch to. With SIZE: plans and links a program for that budget. The run switches to it at the end of its "
        "step; the trained parameters are the same, bit for bit. RUN is a run folder, or its name in runs/. A budget "
        "that is too small is refused: the message names the smallest that works, and the run continues unchanged. "
        "`edgetrain fit --resume` keeps the new budget."
    ),
    words="RUN [SIZE]",
    least_words=1,
    most_words=2,
    flags=(
        Flag(name="--timeout", metavar="TIME", parse=parse_seconds, help="how long to wait for the end of a step: 60s"),
    ),
    examples=(
        "edgetrain budget runs/digits",
        "edgetrain budget runs/digits 300MB",
        "edgetrain budget digits 1GB --json",
    ),
    run=run,
)
