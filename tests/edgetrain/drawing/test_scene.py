from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from edgetrain.drawing.scene import Area, Dot, Label, Line, Scene, below, to_svg

SVG = "{http://www.w3.org/2000/svg}"
SQUARE = ((10.0, 10.0), (20.0, 10.0), (20.0, 20.0), (10.0, 20.0))
SCENE = Scene(
    width=40,
    height=30,
    shapes=(
        Area(points=SQUARE, color="#ff0000", title='a < b & "c"'),
        Line(points=((0.0, 25.0), (40.0, 25.0)), color="#00ff00", is_dashed=True),
        Dot(center=(5.0, 5.0), radius=2, color="#0000ff"),
        Label(at=(1.0, 12.0), text="x < y"),
    ),
)


def test_svg_is_well_formed_whatever_the_texts_hold() -> None:
    picture = ElementTree.fromstring(to_svg(SCENE))
    tags = [element.tag.removeprefix(SVG) for element in picture]
    assert tags == ["rect", "polygon", "polyline", "circle", "text"]
    title = picture.find(f"{SVG}polygon/{SVG}title")
    assert title is not None
    assert title.text == 'a < b & "c"'
    assert picture[-1].text == "x < y"


def test_a_scene_below_another_keeps_its_shapes_and_adds_its_height() -> None:
    both = below(SCENE, SCENE)
    assert (both.width, both.height) == (40, 60)
    assert both.shapes[:4] == SCENE.shapes
    moved = both.shapes[4:]
    assert moved[0] == Area(points=tuple((x, y + 30) for x, y in SQUARE), color="#ff0000", title='a < b & "c"')
    assert isinstance(moved[2], Dot)
    assert moved[2].center == (5.0, 35.0)
    assert isinstance(moved[3], Label)
    assert moved[3].at == (1.0, 42.0)
