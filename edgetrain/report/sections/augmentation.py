"""Training pictures beside what augmentation made of them."""

from __future__ import annotations

from edgetrain.report.html import Markup, element, joined
from edgetrain.report.page import Section
from edgetrain.report.sections.mistakes import embedded
from edgetrain.run.learned.learned import Learned


def augmentation(learned: Learned, *, with_samples: bool = True) -> Section | None:
    """None where nothing was augmented, or no sample is to be shown."""
    if not learned.augmented or not with_samples:
        return None
    return Section(
        name="augmentation",
        title="What augmentation makes of a picture",
        note="Left: a training picture as it is. Beside it: as the first epochs trained on it.",
        body=joined(*(_row(number, addresses) for number, addresses in enumerate(learned.augmented, 1))),
    )


def _row(number: int, addresses: tuple[str, ...]) -> Markup:
    names = (f"training picture {number}", *(f"the same in epoch {epoch}" for epoch in range(1, len(addresses))))
    pictures = (
        element("li", element("img", src=embedded(address), alt=name, width=104, height=104), class_="card")
        for address, name in zip(addresses, names, strict=True)
    )
    return element("ul", *pictures, class_="cards")
