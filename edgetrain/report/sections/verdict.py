"""The first screen of a run's page: was the budget kept, how good is the model, where is it."""

from __future__ import annotations

from edgetrain.report.html import Child, Markup, element, joined
from edgetrain.report.run_record import RunRecord
from edgetrain.report.sections.numbers import metric_value, plural, words
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.units import show_bytes, show_joules, show_seconds


def lead(run: RunRecord) -> Markup:
    """One sentence, then four facts with their numbers."""
    return joined(
        element("p", *_sentence(run), class_="verdict"),
        element("dl", _memory(run), _score(run), _model(run), _time(run), class_="facts"),
    )


def _sentence(run: RunRecord) -> tuple[Child, ...]:
    report = run.report
    measured, budget = show_bytes(run.used_bytes), report.get("budget_bytes")
    if budget is None:
        opening: tuple[Child, ...] = (f"It trained in {measured} of memory, without a budget.",)
    elif report.get("is_within_budget"):
        opening = (
            element("strong", "The memory budget was kept", class_="good"),
            f": it trained in {measured} of {show_bytes(budget)}.",
        )
    else:
        opening = (
            element("strong", "The memory budget was exceeded", class_="bad"),
            f": it was {show_bytes(budget)}, and {_highest(run)} were measured.",
        )
    score = run.scores.get(run.metric)
    if score is None:
        return opening
    said = element("strong", metric_value(run.metric, score))
    return (*opening, f" The model reaches {words(run.metric)} ", said, f" on the {run.part} part of the data.")


def _highest(run: RunRecord) -> str:
    exceeded = [
        period["measured_peak_bytes"]
        for period in run.periods
        if period["budget_bytes"] is not None and period["measured_peak_bytes"] > period["budget_bytes"]
    ]
    return show_bytes(max([*exceeded, run.used_bytes]))


def fact(name: str, value: Child, *more: Child, first: bool = False) -> Markup:
    return element(
        "div",
        element("dt", name),
        element("dd", value, class_="value"),
        *(element("dd", line, class_="more") for line in more if line),
        class_="fact first" if first else "fact",
    )


def _memory(run: RunRecord) -> Markup:
    report = run.report
    budget = report.get("budget_bytes")
    lines = [f"{show_bytes(run.planned_bytes)} planned" + (f", budget {show_bytes(budget)}" if budget else "")]
    if report.get("process_peak_bytes") is not None:
        measured, planned = show_bytes(report["measured_peak_bytes"]), show_bytes(report["planned_peak_bytes"])
        lines.append(f"of it tensors: {measured} measured, {planned} planned")
    value = joined(show_bytes(run.used_bytes), _meter(run.used_bytes, budget))
    return fact("Memory, measured peak", value, *lines, first=True)


def _meter(measured: int, budget: int | None) -> Markup | None:
    if not budget:
        return None
    share = measured / budget
    return element(
        "div",
        element("i", style=f"width:{min(100.0, 100 * share):.1f}%"),
        class_="meter" if share <= 1 else "meter over",
        role="img",
        aria_label=f"{share:.1%} of the budget",
    )


def _score(run: RunRecord) -> Markup:
    score = run.scores.get(run.metric)
    samples = f" of {plural(run.learned.samples, 'sample')}" if run.learned is not None else ""
    others = [f"{words(name)} {metric_value(name, value)}" for name, value in run.scores.items() if name != run.metric]
    if score is None:
        losses = run.losses
        return fact("Training loss", f"{losses[-1]:.4g}" if losses else "none", "there is no part to evaluate on")
    name = words(run.metric)
    return fact(f"{name[0].upper()}{name[1:]}", metric_value(run.metric, score), f"{run.part} part{samples}", *others)


def _model(run: RunRecord) -> Markup:
    best = run.best
    if best is None:
        kept: Child = f"Step {run.report['steps']:,}"
        why = "the last parameters were kept"
    else:
        kept = f"Epoch {best.epoch}"
        # The metric decides where there is one, and the loss else.
        metric = run.metric if run.metric in best.metrics else "loss"
        value = best.metrics.get(metric)
        why = "the best parameters were kept" + (
            f": validation {words(metric)} {metric_value(metric, value)}" if value is not None else ""
        )
    path = RunFolder(run.folder).model
    return fact("Trained model", kept, why, joined("in ", element("code", str(path))))


def _time(run: RunRecord) -> Markup:
    report = run.report
    seconds, planned, energy = (
        report.get("seconds_per_step"),
        report.get("planned_seconds_per_step"),
        report.get("energy"),
    )
    lines = [f"{plural(report['steps'], 'step')}, {report['epochs']:.3g} epochs, {report['ending']}"]
    if planned is not None:
        lines.append(f"{show_seconds(planned)} planned")
    if energy is not None:
        measured = energy["measured_j"]
        joules = measured if measured is not None else energy["modelled_j"]
        lines.append(f"{show_joules(joules)} {'measured' if measured is not None else 'modelled'} in all")
    return fact("Time of a step", show_seconds(seconds) if seconds is not None else "no step", *lines)
