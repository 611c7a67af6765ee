"""The page of a plan: does it fit, who holds the memory when, what does it cost; and solvers side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.compare import Comparison
from edgetrain.planner.explain import Explanation
from edgetrain.planner.memory_timeline import memory_timeline
from edgetrain.planner.plan import Plan
from edgetrain.planner.sweep import SweepPoint
from edgetrain.report.charts.lines import Curve, line_chart
from edgetrain.report.html import Child, Markup, element, joined
from edgetrain.report.operations import Operation
from edgetrain.report.page import Page, Section
from edgetrain.report.sections.memory import draw_timeline, moves_text
from edgetrain.report.sections.numbers import plural
from edgetrain.report.sections.operations import cost_tables
from edgetrain.report.sections.verdict import fact
from edgetrain.units import show_bytes, show_bytes_up, show_joules, show_seconds

_MEASURED = "Times are those of measured kernels, energies are modelled"
_MODELLED = "Modelled from the profile of the target"


def plan_page(
    graph: TrainGraph,
    plan: Plan,
    explanation: Explanation,
    found: Sequence[Operation],
    *,
    sweep: Sequence[SweepPoint] = (),
    text: str,
) -> Page:
    """`found` is what the step's kernels cost, `text` what the command prints."""
    timeline = memory_timeline(graph, plan)
    sections = [
        Section(
            name="memory",
            title="Memory",
            note=f"Every kernel call of a step, in order, with what is in memory meanwhile. {moves_text(timeline)}",
            body=draw_timeline(timeline),
        )
    ]
    if sweep:
        budget = plan.budget.memory_bytes
        sections.append(
            Section(
                name="sweep",
                title="Other budgets",
                note="What a step costs over the memory budget, from the smallest that works to keeping everything.",
                body=_sweep(sweep, budget),
            )
        )
    sections += [
        Section(
            name="cost",
            title="Time and energy",
            note=f"{_MEASURED if explanation.is_timed else _MODELLED}, recomputation included.",
            body=cost_tables(found),
        ),
        Section(name="text", title="In words", body=element("pre", text, tabindex=0)),
    ]
    return Page(
        title=f"{graph.name}: one training step", kind="plan", lead=_lead(explanation), sections=tuple(sections)
    )


def _lead(found: Explanation) -> Markup:
    return joined(
        element("p", *_sentence(found), class_="verdict"),
        element("dl", _memory(found), _time(found), _energy(found), _moves(found), class_="facts"),
    )


def _sentence(found: Explanation) -> tuple[Child, ...]:
    needed = show_bytes(found.peak_bytes + found.beside_bytes)
    if found.budget_bytes is None:
        return (f"Training takes {needed}. There is no memory budget.",)
    budget = show_bytes(found.budget_bytes)
    if not found.fits:
        return (
            element("strong", "It does not fit", class_="bad"),
            f": training takes {needed}, the budget is {budget}.",
        )
    slow = f" It takes {found.slowdown:.2f} times as long as keeping everything." if found.slowdown else ""
    return (element("strong", "It fits", class_="good"), f": training takes {needed} of {budget}.", slow)


def _memory(found: Explanation) -> Markup:
    lines = [f"in {found.peak_source or found.peak_op or found.peak_function}"]
    of_tensors = "of tensors " if found.beside_bytes else ""
    if found.beside_bytes:
        lines.insert(0, f"tensors {show_bytes(found.peak_bytes)}, program {show_bytes(found.beside_bytes)}")
    if found.keep_all_bytes is not None:
        lines.append(f"{show_bytes(found.keep_all_bytes)} {of_tensors}to keep everything")
    if found.smallest_bytes is not None:
        lines.append(f"{show_bytes_up(found.smallest_bytes)} is the smallest budget that works")
    needed = show_bytes(found.peak_bytes + found.beside_bytes)
    return fact("Memory, planned peak", needed, *lines, first=True)


def _time(found: Explanation) -> Markup:
    return fact("Time of a step", show_seconds(found.seconds), "of measured kernels" if found.is_timed else "modelled")


def _energy(found: Explanation) -> Markup:
    return fact("Energy of a step", show_joules(found.joules), "modelled")


def _moves(found: Explanation) -> Markup:
    paged = f"{plural(len(found.paged), 'tensor')} paged"
    written = f"{show_bytes(found.written_bytes)} written a step" if found.written_bytes else ""
    return fact("Recomputed", plural(sum(found.recomputed.values()), "call"), paged, written)


def _sweep(points: Sequence[SweepPoint], budget_bytes: int | None) -> Markup:
    """Two charts, for time and energy have units of their own."""
    is_inside = budget_bytes is not None and points[0].budget_bytes <= budget_bytes <= points[-1].budget_bytes
    marks = ((float(budget_bytes), f"budget {show_bytes(budget_bytes)}"),) if is_inside and budget_bytes else ()
    low, high = points[0].budget_bytes, points[-1].budget_bytes
    x_labels = tuple((float(at), show_bytes(round(at))) for at in (low, (low + high) / 2, high))
    seconds = tuple((float(point.budget_bytes), float(point.seconds)) for point in points)
    joules = tuple((float(point.budget_bytes), float(point.joules)) for point in points)
    charts = [
        line_chart(
            name,
            title,
            [Curve(name=legend, points=line, ink=ink, is_marked=True)],
            x_title="memory budget",
            show=show,
            x_labels=x_labels,
            tell=lambda x: f"budget {show_bytes(round(x))}",
            marks=marks,
            y_labels=partial(_three, show=show),
        )
        for name, title, legend, line, ink, show in (
            ("sweep-time", "Time of a step", "time", seconds, "var(--series-1)", show_seconds),
            ("sweep-energy", "Energy of a step", "energy, modelled", joules, "var(--series-2)", show_joules),
        )
    ]
    return element("div", *charts, class_="pair")


def _three(low: float, high: float, *, show: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    """The least, the middle and the greatest value: round ones would not be round in a person's units."""
    margin = 0.06 / 1.12 * (high - low)  # what a chart leaves free
    return tuple((value, show(value)) for value in (low + margin, (low + high) / 2, high - margin))


def solvers_page(rows: Sequence[Comparison], *, name: str, text: str) -> Page:
    """Every solver's answer to the same question."""
    slowest = max((row.seconds for row in rows if row.seconds is not None), default=1.0) or 1.0
    head = ("solver", "time of a step", "energy", "peak", "gap", "")
    table = element(
        "table",
        element("thead", element("tr", *(element("th", each) for each in head))),
        element("tbody", *(_solver(row, slowest) for row in rows)),
    )
    quickest = min((row for row in rows if row.seconds is not None), key=lambda r: r.seconds or 0, default=None)
    lead = "No solver found a plan." if quickest is None else f"The quickest plan is that of {quickest.solver}."
    return Page(
        title=f"{name}: one step by solver",
        kind="plan",
        lead=element("p", lead, class_="verdict"),
        sections=(
            Section(name="solvers", title="Solvers", body=element("div", table, class_="scroll")),
            Section(name="text", title="In words", body=element("pre", text, tabindex=0)),
        ),
    )


def _solver(row: Comparison, slowest: float) -> Markup:
    if row.seconds is None or row.joules is None or row.peak_bytes is None:
        return element(
            "tr", element("th", row.solver, scope="row"), element("td", f"no plan: {row.why}", colspan=5, class_="left")
        )
    return element(
        "tr",
        element("th", row.solver, scope="row"),
        element("td", show_seconds(row.seconds)),
        element("td", show_joules(row.joules)),
        element("td", show_bytes(row.peak_bytes)),
        element("td", f"{row.gap:.2%}" if row.gap is not None else "–"),
        element("td", element("i", class_="bar", style=f"width:{100 * row.seconds / slowest:.1f}%"), class_="bars"),
    )
