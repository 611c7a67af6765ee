"""The samples that the model finds hardest, as pictures or texts."""

from __future__ import annotations

from collections.abc import Sequence

from edgetrain.report.html import Child, Markup, element, joined
from edgetrain.report.page import Section
from edgetrain.report.sections.numbers import percent
from edgetrain.run.learned.class_outcomes import name_of
from edgetrain.run.learned.learned import HardSample, Learned

_MOST_RIGHT = 8  # samples that are right but hard


def mistakes(learned: Learned, *, with_samples: bool = True) -> Section | None:
    """None where nothing is known about single samples. Without `with_samples` no picture or text is shown."""
    if not learned.hardest:
        return None
    wrong = [sample for sample in learned.hardest if sample.is_wrong]
    right = [sample for sample in learned.hardest if sample.is_wrong is False]
    judged = [sample for sample in learned.hardest if sample.is_wrong is None]
    parts: list[Child] = []
    if wrong:
        parts.append(_cards(wrong, learned, with_samples=with_samples))
    if right:
        parts.append(element("h3", "Right, but hard" if wrong else "Hardest, and right all the same"))
        parts.append(_cards(right[:_MOST_RIGHT], learned, with_samples=with_samples))
    if judged:
        parts.append(_cards(judged, learned, with_samples=with_samples))
    title = "Worst mistakes" if wrong else "Hardest samples"
    note = f"Of the {learned.part} part, the samples with the highest loss. The worst comes first."
    return Section(name="mistakes", title=title, note=note, body=joined(*parts))


def _cards(samples: Sequence[HardSample], learned: Learned, *, with_samples: bool) -> Markup:
    is_wide = with_samples and any(sample.text for sample in samples)
    cards = (_card(sample, learned, with_samples=with_samples) for sample in samples)
    return element("ul", *cards, class_="cards wide" if is_wide else "cards")


def _card(sample: HardSample, learned: Learned, *, with_samples: bool) -> Markup:
    said = _said(sample, learned)
    where = sample.file or f"row {sample.row:,}"
    picture = None
    if sample.picture and with_samples:
        alt = f"{where}: {'; '.join(said) or 'a hard sample'}"
        picture = element("img", src=embedded(sample.picture), alt=alt, width=104, height=104)
    return element(
        "li",
        picture,
        *(element("p", line, class_="bad" if sample.is_wrong and not i else None) for i, line in enumerate(said)),
        element("blockquote", sample.text) if sample.text and with_samples else None,
        element("p", where, f" · loss {sample.loss:.3g}", class_="where"),
        class_="card",
    )


def embedded(address: str) -> str:
    """Only pictures that are part of the file: a `learned.json` from elsewhere must not make the page load anything."""
    return address if address.startswith("data:image/png;base64,") else "data:,"


def _said(sample: HardSample, learned: Learned) -> list[str]:
    if sample.actual is None or sample.predicted is None:
        return []
    if learned.classes is None:
        off = sample.predicted - sample.actual
        return [f"predicted {sample.predicted:.5g}", f"true {sample.actual:.5g}, off by {off:+.3g}"]
    predicted, actual = (name_of(int(value), learned.class_names) for value in (sample.predicted, sample.actual))
    sure = f", {percent(sample.confidence, 0)} sure" if sample.confidence is not None else ""
    return [f"{predicted}{sure}", f"true: {actual}"] if sample.is_wrong else [f"{predicted}{sure}"]
