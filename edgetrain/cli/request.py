"""What `fit`, `plan`, `check` and `inspect` share: a recipe or model, overrides, a target and a budget."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgetrain import __version__
from edgetrain.cli.command import Flag, to_path
from edgetrain.cli.console import Console
from edgetrain.cost.carbon import WORLD_AVERAGE, CarbonIntensity, parse_intensity
from edgetrain.errors import UsageError
from edgetrain.recipes import Recipe
from edgetrain.units import (
    parse_bytes,
    parse_joules,
    parse_seconds,
    show_bytes,
    show_bytes_both,
    show_joules,
    show_seconds,
)

if TYPE_CHECKING:
    from edgetrain.pipeline.job import Job
    from edgetrain.planner.solvers.options import SolverOptions
    from edgetrain.progress import ReportProgress
    from edgetrain.run.files.folders import JobRecord

SOURCE_WORDS = "[RECIPE|MODEL.onnx] [key=value ...]"
OVERRIDES_TEXT = (
    "A key=value sets one value of the recipe, like train.batch=4 or update.mode=head; "
    "`edgetrain recipes NAME` shows all of them."
)
DEFAULT_RECIPE = "digits"
DEFAULT_TARGET = "host"
DEFAULT_SOLVER = "greedy"
_MOST_DIGITS = 18


def positive(text: str) -> int:
    """A whole number of 1 or more, with at most 18 digits. Raises `UsageError` for anything else."""
    if len(text) > _MOST_DIGITS:
        raise UsageError(f"`{text[:_MOST_DIGITS]}…` has more than {_MOST_DIGITS} digits", fix="write a smaller number")
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"`{text}` is not a whole number of 1 or more")
    return int(text)


TARGET = Flag(name="--target", metavar="T", help="the device to plan and compile for; see `edgetrain targets`")
BUDGET = Flag(name="--budget", metavar="SIZE", parse=parse_bytes, help="memory the run may use: 300MB, 256KiB, 2GB")
DEADLINE = Flag(name="--deadline", metavar="TIME", parse=parse_seconds, help="modelled time of a step at most: 50ms")
ENERGY = Flag(name="--energy", metavar="E", parse=parse_joules, help="modelled energy of a step at most: 30mJ, 1J")
SOLVER = Flag(
    name="--solver",
    metavar="S",
    help="the planner: greedy (default), milp (searches for the best plan), keep-all (recomputes nothing)",
)
TIME_LIMIT = Flag(
    name="--time-limit", metavar="TIME", parse=parse_seconds, help="how long an exact solver may search: 30s (default)"
)


def energy_share(text: str) -> float:
    """What `--minimize` says, as the share of energy in it. Raises `UsageError` for anything else."""
    words = {"time": 0.0, "energy": 1.0}
    try:
        share = words[text] if text in words else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(
            f"`{text}` cannot be minimised", fix="say `time`, `energy`, or the share of energy in a mix, like 0.3"
        )
    return share


MINIMIZE = Flag(
    name="--minimize",
    metavar="WHAT",
    parse=energy_share,
    help="time of a step (default), energy, or a mix: 0.3 weighs energy with 0.3 and time with 0.7",
)
WEAR = Flag(
    name="--wear", metavar="SIZE", parse=parse_bytes, help="bytes that a step may write to storage, which wears flash"
)
MIP_SOLVER = Flag(
    name="--mip-solver",
    metavar="NAME",
    help="the MIP solver for exact planning: highs (default), cbc, or another that PuLP finds: GLPK_CMD, SCIP_CMD",
)
NODES = Flag(
    name="--nodes",
    metavar="N",
    parse=positive,
    help="end an exact search after N nodes, not after a time: gives the same plan on every machine",
)
PLANNING_FLAGS = (SOLVER, TIME_LIMIT, MINIMIZE, WEAR, MIP_SOLVER, NODES)
_NODES_TIME_LIMIT_S = 86_400.0  # with a limit on nodes the clock must not end the search
CO2 = Flag(
    name="--co2",
    metavar="G",
    parse=parse_intensity,
    help=f"grams of CO2 for each kWh of your electricity; {WORLD_AVERAGE.g_per_kwh:g} (world average) without it",
)
DUMP = Flag(name="--dump", metavar="DIR", parse=to_path, help="write the output of every stage there")

# key=value, where the key is words and dots: a path with a `=` in a folder's name has a `/` before it.
_OVERRIDE = re.compile(r"[A-Za-z_][\w.\-]*=")


def split_words(words: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The recipe or model, if one is named, and the overrides. Raises `UsageError` for a second recipe or model."""
    overrides = tuple(word for word in words if _OVERRIDE.match(word))
    sources = [word for word in words if not _OVERRIDE.match(word)]
    if any(not word.strip() for word in words):
        raise UsageError("an argument is empty", fix="leave it out, or name a recipe or a model")
    if len(sources) > 1:
        raise UsageError(
            f"`{sources[0]}` and `{sources[1]}` are two models or recipes",
            fix="give one; values of the recipe are set with key=value",
        )
    return (sources[0] if sources else None), overrides


def _carbon_of(arguments: argparse.Namespace, stored: JobRecord | None) -> CarbonIntensity:
    given: CarbonIntensity | None = getattr(arguments, "co2", None)
    if given is None and stored is not None and stored.co2_g_per_kwh is not None:
        return parse_intensity(f"{stored.co2_g_per_kwh}")
    return given or WORLD_AVERAGE


def _planning(arguments: argparse.Namespace, asked: Callable[[str], object]) -> SolverOptions:
    """What the flags say about the search. Raises `UsageError` for a MIP solver that is not there."""
    from edgetrain.planner.solvers.mip_solvers import require_mip_solver
    from edgetrain.planner.solvers.options import USUAL, SolverOptions

    mip_solver, nodes = asked("mip_solver"), asked("nodes")
    if mip_solver is not None:
        require_mip_solver(str(mip_solver))
    time_limit_s = _NODES_TIME_LIMIT_S if nodes is not None else USUAL.time_limit_s
    return SolverOptions(
        energy_share=float(str(asked("minimize") or USUAL.energy_share)),
        time_limit_s=float(getattr(arguments, "time_limit", None) or time_limit_s),
        nodes=int(str(nodes)) if nodes is not None else None,
        mip_solver=str(mip_solver or USUAL.mip_solver),
        allowed_slowdown=USUAL.allowed_slowdown,
    )


def job_of(
    arguments: argparse.Namespace,
    recipe: Recipe,
    console: Console,
    *,
    progress: ReportProgress | None = None,
    stored: JobRecord | None = None,
) -> Job:
    """The job that the flags ask for; what a flag does not say is as in `stored`. Echoes the limits both ways."""
    from edgetrain.pipeline.job import Job
    from edgetrain.planner.known_solvers import SOLVERS
    from edgetrain.planner.plan import Budget
    from edgetrain.targets.profile import load_target

    def asked(name: str) -> object:
        flag = getattr(arguments, name, None)
        field = {
            "budget": "memory_bytes",
            "deadline": "deadline_s",
            "energy": "energy_j",
            "wear": "written_bytes",
            "minimize": "energy_share",
        }.get(name, name)
        return flag if flag is not None or stored is None else getattr(stored, field)

    solver = str(asked("solver") or DEFAULT_SOLVER)
    if solver not in SOLVERS:
        raise UsageError(f"there is no solver `{solver}`", fix=f"choose one of {', '.join(sorted(SOLVERS))}")
    budget = Budget(
        memory_bytes=asked("budget"),  # type: ignore[arg-type]  # the flags' parsers return these types
        deadline_s=asked("deadline"),  # type: ignore[arg-type]
        energy_j=asked("energy"),  # type: ignore[arg-type]
        written_bytes=asked("wear"),  # type: ignore[arg-type]
    )
    target = load_target(str(asked("target") or DEFAULT_TARGET))
    limits = [f"budget {show_bytes_both(budget.memory_bytes)}"] if budget.memory_bytes is not None else []
    limits += [f"deadline {show_seconds(budget.deadline_s)} a step"] if budget.deadline_s is not None else []
    limits += [f"energy {show_joules(budget.energy_j)} a step"] if budget.energy_j is not None else []
    limits += [f"{show_bytes(budget.written_bytes)} written a step"] if budget.written_bytes is not None else []
    console.say(", ".join((f"{recipe.name} on {target.name}", *limits)))
    threads = asked("threads")
    return Job(
        recipe=recipe,
        target=target,
        budget=budget,
        solver=solver,
        planning=_planning(arguments, asked),
        threads=int(str(threads)) if threads is not None else None,
        tool=f"edgetrain {__version__}",
        progress=progress,
        carbon=_carbon_of(arguments, stored),
        notify=console.warn,
        inform=console.say,
    )
