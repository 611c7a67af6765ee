from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgetrain.run.files.plot import Panel, Series, draw, thin

SVG = "{http://www.w3.org/2000/svg}"
finite = st.floats(-1e6, 1e6)
points = st.lists(st.tuples(finite, finite), max_size=50)


def parsed(*panels: Panel) -> ElementTree.Element:
    return ElementTree.fromstring(draw(panels, x_label="step"))


@given(drawn=points)
@example(drawn=[(0.0, 0.0), (0.0, 5e-324)])
def test_everything_drawn_lies_on_the_canvas(drawn: list[tuple[float, float]]) -> None:
    picture = parsed(Panel(title="loss", series=(Series(name="training", points=tuple(drawn), is_marked=True),)))
    circles = picture.findall(f"{SVG}circle")
    assert len(circles) == len(drawn)
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= float(picture.attrib["width"])
        assert 0 <= float(circle.attrib["cy"]) <= float(picture.attrib["height"])


def test_higher_values_are_drawn_higher_and_later_ones_further_right() -> None:
    line = Series(name="a", points=((1.0, 5.0), (2.0, 1.0), (4.0, 9.0)))
    polyline = parsed(Panel(title="t", series=(line,))).find(f"{SVG}polyline")
    assert polyline is not None
    pixels = [tuple(map(float, pair.split(","))) for pair in polyline.attrib["points"].split()]
    assert [x for x, _ in pixels] == sorted(x for x, _ in pixels)
    assert pixels[2][1] < pixels[0][1] < pixels[1][1]
    assert (pixels[2][0] - pixels[1][0]) == pytest.approx(2 * (pixels[1][0] - pixels[0][0]), abs=0.2)


def test_names_are_escaped_and_shown() -> None:
    picture = parsed(Panel(title="a < b", series=(Series(name="x & y", points=((0.0, 0.0),)),)))
    texts = [element.text for element in picture.findall(f"{SVG}text")]
    assert "a < b" in texts
    assert "x & y" in texts


@given(drawn=points, most=st.integers(4, 30))
def test_thinning_keeps_order_and_extremes(drawn: list[tuple[float, float]], most: int) -> None:
    drawn.sort()
    kept = thin(drawn, most)
    assert len(kept) <= max(most, 0)
    assert kept == sorted(kept)
    assert set(kept) <= set(drawn)
    if drawn:
        ys, kept_ys = [y for _, y in drawn], [y for _, y in kept]
        assert (min(ys), max(ys)) == (min(kept_ys), max(kept_ys))
