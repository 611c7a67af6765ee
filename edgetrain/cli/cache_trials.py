"""`edgetrain cache verify --run`: verifies results and speed of schedules on this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from edgetrain.cli.console import Console
from edgetrain.cli.request import DEFAULT_RECIPE, job_of, split_words
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.errors import UsageError
from edgetrain.pipeline.source import recipe_of

if TYPE_CHECKING:
    from edgetrain.recipes import Recipe
    from edgetrain.tuning.verify import Verification

_SHORT_ID = 12


def recipe_to_try(arguments: argparse.Namespace) -> Recipe | None:
    """The recipe whose kernels are tried; None without `--run`.

    Raises `UsageError` for what says so without `--run`, and for another store than the user's: what is tried is what
    `fit` would use.
    """
    source, values = split_words(arguments.words[1:])
    if source is not None:
        raise UsageError(f"`{source}` sets no value of the recipe", fix=f"name a model with `--run --model {source}`")
    if not arguments.run:
        if arguments.model is not None or values:
            given = "--model" if arguments.model is not None else f"`{values[0]}`"
            raise UsageError(f"{given} selects the kernels to try, but there is no --run", fix="add --run")
        return None
    if arguments.store is not None:
        raise UsageError("--run and --store do not go together", why="--run tries the schedules that `fit` would use")
    return recipe_of(arguments.model or DEFAULT_RECIPE, values, needs_data=False)


def run_trials(recipe: Recipe, console: Console) -> Verification:
    """Tries the entries on the recipe's kernels."""
    from edgetrain.pipeline.resolve import resolve_without_data
    from edgetrain.tuning.verify import verify_schedules

    with StageProgress(console) as stages:
        job = job_of(argparse.Namespace(), recipe, console, progress=stages)
        return verify_schedules(resolve_without_data(job))


def verification_text(found: Verification) -> str:
    """A line for each that was tried, and how many were not."""
    order = {verdict: number for number, verdict in enumerate(found.counts)}
    rows = [
        (
            one.verdict,
            one.entry[:_SHORT_ID],
            one.level,
            f"{one.outcome.speedup:.2f}x" if one.outcome.is_good else "-",
            f"said {one.claimed:.2f}x",
            one.kernel if not one.is_broken else f"{one.kernel}: {one.outcome.message}",
        )
        for one in sorted(found.tried, key=lambda one: (order[one.verdict], -one.outcome.speedup, one.entry))
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(6)] if rows else []
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"unmeasured  {kernel}: {why}" for kernel, why in found.unmeasured.items()]
    counts = ", ".join(f"{verdict} {count}" for verdict, count in found.counts.items() if count)
    lines.append(f"{len(found.tried)} tried on the kernels of {found.model}{f': {counts}' if counts else ''}")
    if found.uncovered:
        lines.append(f"{found.uncovered} not covered: they are for other kernels, targets or rules")
    if found.unpromising:
        lines.append(f"{found.unpromising} not tried: by their own measurements they are no faster")
    return "\n".join(lines) + "\n"
