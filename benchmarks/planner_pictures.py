"""Draws the results of `benchmarks/planner.py`: what less memory costs by solver, the predicted and measured slowdown
of real models, and for each published case its solving time and its distance from the best known answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgetrain.run.files.plot import Panel, Series, draw

Rows = Sequence[Mapping[str, Any]]


def memory_picture(rows: Rows) -> str:
    """Slowdown over the share of memory, a line for each solver; not `swap-all`, which would flatten the others."""
    solvers = dict.fromkeys(row["solver"] for row in rows if row["feasible"] and row["solver"] != "swap-all")
    lines = []
    for solver in solvers:
        points = sorted(
            (100 * row["share"], row["slowdown"]) for row in rows if row["solver"] == solver and row["feasible"]
        )
        lines.append(Series(name=solver, points=tuple(points), is_marked=True))
    title = "slowdown"
    return draw([Panel(title=title, series=tuple(lines))], x_label="memory for temporaries, % of keep-all")


def models_picture(rows: Rows) -> str:
    """For each model, predicted and measured slowdown over its share of memory."""
    panels = []
    for model in dict.fromkeys(row["model"] for row in rows):
        series = []
        for kind in ("predicted", "measured"):
            points = sorted(
                (100 * row["share"], row[f"slowdown_{kind}"])
                for row in rows
                if row["model"] == model and row["feasible"] and row["solver"] == "milp" and row["way"] == "page"
            )
            series.append(Series(name=kind, points=((*points, (100.0, 1.0))), is_marked=True))
        panels.append(Panel(title=f"{model}: slowdown", series=tuple(series)))
    return draw(panels, x_label="memory, % of keep-all, parameters and state included")


def published_picture(rows: Rows) -> str:
    """Over the cases in order: seconds to solve, and distance from the best answer known."""
    seconds = tuple((float(number), row["seconds"]) for number, row in enumerate(rows, start=1))
    above = tuple(
        (float(number), 100 * row["above_best"])
        for number, row in enumerate(rows, start=1)
        if row["above_best"] is not None
    )
    return draw(
        [
            Panel(title="seconds to solve", series=(Series(name="milp", points=seconds, is_marked=True),)),
            Panel(title="above the best known, %", series=(Series(name="milp", points=above, is_marked=True),)),
        ],
        x_label="published case",
    )


def pictures(result: Mapping[str, Rows]) -> dict[str, str]:
    """Every picture by its file's name."""
    return {
        "planner-memory.svg": memory_picture(result["sweep"]),
        "planner-models.svg": models_picture(result["models"]),
        "planner-published.svg": published_picture(result["published"]),
    }
