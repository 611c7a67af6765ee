"""Which classes the model tells apart, and whether it knows how sure it may be."""

from __future__ import annotations

from collections.abc import Sequence

from edgetrain.report.charts.plot import Frame, Key, Labels, Told, dots, figure, legend, path, plot
from edgetrain.report.html import Child, Markup, element, joined
from edgetrain.report.page import Section
from edgetrain.report.sections.numbers import percent, plural
from edgetrain.run.learned.calibration import Bin, Calibration
from edgetrain.run.learned.class_outcomes import Cell, ClassOutcomes, ClassRow
from edgetrain.run.learned.learned import Learned

_MOST_IN_MATRIX = 24
_MOST_CONFUSIONS = 20
_MANY_ROWS = 30


def classes(learned: Learned) -> Section | None:
    """None for a model that predicts no classes."""
    if learned.classes is None:
        return None
    found = learned.classes
    confusion = None
    if found.cells:
        is_small = len(found.rows) <= _MOST_IN_MATRIX
        confusion = _matrix(found) if is_small else _confusions(found)
    return Section(
        name="classes",
        title="Classes",
        note=f"On the {learned.part} part, {plural(learned.samples, 'sample')} that the model was not trained on.",
        body=joined(confusion, element("h3", "Class by class"), _table(found.rows)),
    )


def _matrix(found: ClassOutcomes) -> Markup:
    counts = {(cell.actual, cell.predicted): cell.count for cell in found.cells}
    head = element("tr", element("th"), *(element("th", row.name, scope="col") for row in found.rows))
    rows = (
        element(
            "tr",
            element("th", actual.name, scope="row"),
            *(_cell(counts.get((actual.number, row.number), 0), actual, row) for row in found.rows),
        )
        for actual in found.rows
    )
    table = element("table", element("thead", head), element("tbody", *rows), class_="matrix")
    return joined(
        element("h3", "Confusion matrix"),
        element(
            "p",
            "A row for each true class, a column for each predicted one. Off the diagonal are mistakes.",
            class_="note",
        ),
        element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Confusion matrix"),
    )


def _cell(count: int, actual: ClassRow, predicted: ClassRow) -> Markup:
    share = count / actual.count if actual.count else 0.0
    is_right = actual.number == predicted.number
    ink = "var(--accent)" if is_right else "var(--bad)"
    # A single mistake among hundreds must be seen: it starts at a tint of its own.
    tint = share if is_right or not count else min(1.0, 0.25 + share)
    classes = " ".join(name for name, holds in (("zero", not count), ("strong", tint > 0.55)) if holds)
    return element(
        "td",
        f"{count:,}",
        class_=classes or None,
        style=f"--share:{tint:.3f};--ink:{ink}",
        title=f"{actual.name} taken for {predicted.name}: {count:,} of {actual.count:,}",
    )


def _confusions(found: ClassOutcomes) -> Markup:
    """Of many classes the pairs that are confused most often: a matrix would be a page of zeros."""
    names = {row.number: row.name for row in found.rows}
    totals = {row.number: row.count for row in found.rows}
    wrong = sorted((c for c in found.cells if c.actual != c.predicted), key=lambda c: (-c.count, c.actual, c.predicted))
    rows = (_confusion(cell, names, totals) for cell in wrong[:_MOST_CONFUSIONS])
    head = element("tr", *(element("th", name) for name in ("true class", "taken for", "times", "of its samples")))
    table = element("table", element("thead", head), element("tbody", *rows))
    return joined(element("h3", "Most frequent confusions"), element("div", table, class_="scroll"))


def _confusion(cell: Cell, names: dict[int, str], totals: dict[int, int]) -> Markup:
    return element(
        "tr",
        element("th", names[cell.actual], scope="row"),
        element("td", names[cell.predicted], class_="left"),
        element("td", f"{cell.count:,}"),
        element("td", percent(cell.count / totals[cell.actual])),
    )


def _table(rows: Sequence[ClassRow]) -> Markup:
    head = element(
        "tr",
        *(element("th", name) for name in ("class", "precision", "recall", "F1", "samples")),
        element("th", "predicted", class_="optional"),
    )
    table = element("table", element("thead", head), element("tbody", *map(_class, rows)))
    listed = element("div", table, class_="scroll")
    if len(rows) <= _MANY_ROWS:
        return listed
    return element("details", element("summary", f"All {len(rows)} classes"), listed)


def _class(row: ClassRow) -> Markup:
    shares: list[Child] = [percent(v) if v is not None else "–" for v in (row.precision, row.recall, row.f1)]
    return element(
        "tr",
        element("th", row.name, scope="row"),
        *(element("td", share) for share in shares),
        element("td", f"{row.count:,}"),
        element("td", f"{row.predicted:,}", class_="optional"),
    )


def calibration(learned: Learned) -> Section | None:
    """None where the model gives no probabilities."""
    found = learned.calibration
    if found is None:
        return None
    full = [each for each in found.bins if each.count]
    sure = sum(each.count * (each.confidence or 0) for each in full) / sum(each.count for each in full)
    right = sum(each.count * (each.accuracy or 0) for each in full) / sum(each.count for each in full)
    word = "surer than it may be" if sure - right > 0.02 else "less sure than it may be" if right - sure > 0.02 else ""
    judged = f"It is {word}." if word else "It knows well how sure it may be."
    return Section(
        name="calibration",
        title="Calibration",
        note=(
            f"Whether predictions made with 90 % confidence are right in 90 % of the cases. {judged} "
            f"Mean confidence {percent(sure)}, right {percent(right)}, expected calibration error "
            f"{percent(found.expected_error)}."
        ),
        body=element("div", _reliability(found), _bins(full), class_="pair"),
    )


def _reliability(found: Calibration) -> Markup:
    frame = Frame(x_low=0, x_high=1, y_low=0, y_high=1)
    most = max(each.count for each in found.bins)
    boxes = (_box(each, frame, most) for each in found.bins if each.count)
    points = [(each.confidence or 0.0, each.accuracy or 0.0) for each in found.bins if each.count]
    shapes = joined(
        *boxes,
        element("path", d=path([(0, 1000), (1000, 0)]), class_="curve dashed", style="--ink:var(--muted)"),
        element(
            "path",
            d=path([(frame.x(x), frame.y(y)) for x, y in points]),
            class_="curve faint",
            style="--ink:var(--accent)",
        ),
        element(
            "path", d=dots([(frame.x(x), frame.y(y)) for x, y in points]), class_="marks", style="--ink:var(--accent)"
        ),
    )
    told = [
        Told(
            x=each.confidence or 0.0,
            title=f"{each.low:.0%} to {each.high:.0%} sure",
            rows=(
                ("right", percent(each.accuracy or 0)),
                ("sure", percent(each.confidence or 0)),
                ("predictions", f"{each.count:,}"),
            ),
        )
        for each in found.bins
        if each.count
    ]
    marks = tuple((share / 100, f"{share} %") for share in (0, 25, 50, 75, 100))
    return figure(
        "How often it is right",
        legend(
            [
                Key(text="right", ink="var(--accent)", shape="dot"),
                Key(text="perfectly calibrated", ink="var(--muted)", shape="dashed"),
                Key(text="share of the predictions", ink="var(--outputs)"),
            ]
        ),
        plot(
            "reliability",
            frame,
            shapes,
            label=f"Reliability diagram. Expected calibration error {found.expected_error:.1%}.",
            labels=Labels(x=marks, y=marks, x_title="how sure the model is"),
            told=told,
            is_square=True,
        ),
    )


def _box(each: Bin, frame: Frame, most: int) -> Markup:
    left, right = frame.x(each.low) + 6, frame.x(each.high) - 6
    top = 1000 - 280 * each.count / most
    line = path([(left, 1000), (left, top), (right, top), (right, 1000)])
    return element("path", d=line + "Z", class_="fill", style="--ink:var(--outputs)")


def _bins(full: Sequence[Bin]) -> Markup:
    head = element("tr", *(element("th", name) for name in ("confidence", "predictions", "sure", "right")))
    rows = (
        element(
            "tr",
            element("th", f"{each.low:.0%} – {each.high:.0%}", scope="row"),
            element("td", f"{each.count:,}"),
            element("td", percent(each.confidence or 0)),
            element("td", percent(each.accuracy or 0)),
        )
        for each in full
    )
    return element("div", element("table", element("thead", head), element("tbody", *rows)), class_="scroll")
