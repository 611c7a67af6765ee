"""Where the time and the energy of a step go."""

from __future__ import annotations

from collections.abc import Sequence

from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.report.html import Markup, breakable, element, joined
from edgetrain.report.operations import Operation, by_kind, operations
from edgetrain.report.page import Section
from edgetrain.report.run_record import RunRecord
from edgetrain.report.sections.numbers import percent
from edgetrain.units import show_joules, show_seconds

MOST = 20


def step_cost(run: RunRecord) -> Section | None:
    """None for a run whose plan, or whose target's profile, is not there."""
    if run.graph is None or run.plan is None or run.device is None:
        return None
    accumulate = int(run.recipe.get("train", {}).get("accumulate", 1) or 1)
    costs = analytic_costs_by_function(run.graph, run.device.rates)
    found = operations(run.graph, run.plan, costs, run.device.storage, accumulate=accumulate)
    measured = run.report.get("seconds_per_step")
    note = f"Modelled from the profile of {run.report.get('target')}, recomputation included"
    total = f": {show_seconds(sum(each.seconds for each in found))} a step"
    return Section(
        name="cost",
        title="Time and energy",
        note=note + total + (f"; {show_seconds(measured)} were measured here." if measured is not None else "."),
        body=cost_tables(found),
    )


def cost_tables(found: Sequence[Operation]) -> Markup:
    """By kind, and on request call by call."""
    kinds = by_kind(found)
    calls = sorted(found, key=lambda each: (-each.seconds, each.name))
    whole = f"The {MOST} calls that take longest" if len(calls) > MOST else f"All {len(calls)} calls"
    return joined(
        _table(kinds[:MOST], found, rest=kinds[MOST:]),
        element("details", element("summary", whole), _table(calls[:MOST], found, rest=calls[MOST:])),
    )


def _table(rows: Sequence[Operation], found: Sequence[Operation], *, rest: Sequence[Operation]) -> Markup:
    total = sum(each.seconds for each in found) or 1.0
    longest = max((each.seconds for each in rows), default=0.0) or 1.0
    head = element(
        "tr",
        element("th", "kernel"),
        element("th", "phase", class_="left optional"),
        element("th", "runs", class_="optional"),
        element("th", "time"),
        element("th", "energy"),
        element("th", "share of the time", colspan=2, class_="left"),
    )
    body = [_row(each, total, longest) for each in rows]
    if rest:
        summed = Operation(
            name=f"{len(rest)} others",
            kind="",
            phase="",
            runs=sum(each.runs for each in rest),
            seconds=sum(each.seconds for each in rest),
            joules=sum(each.joules for each in rest),
        )
        body.append(_row(summed, total, longest))
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="scroll")


def _row(each: Operation, total: float, longest: float) -> Markup:
    share = each.seconds / total
    return element(
        "tr",
        element("th", breakable(each.name), scope="row"),
        element("td", each.phase, class_="left muted optional"),
        element("td", f"{each.runs:,}", class_="optional"),
        element("td", show_seconds(each.seconds)),
        element("td", show_joules(each.joules)),
        element("td", percent(share)),
        element(
            "td",
            element("i", class_="bar", style=f"width:{100 * min(1.0, each.seconds / longest):.1f}%"),
            class_="bars",
        ),
    )
