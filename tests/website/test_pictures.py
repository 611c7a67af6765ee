"""The pictures of the concepts are what the script draws, and the plans in them are the planner's."""

from __future__ import annotations

import pytest

from edgetrain.drawing.scene import Area, Label, to_svg
from website.pictures import FOLDER, PICTURES, three_plans


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_in_the_tree_is_what_the_script_draws(name: str) -> None:
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == to_svg(PICTURES[name]())


def test_there_is_no_picture_that_no_script_draws() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.svg" for name in PICTURES}


def test_less_memory_costs_time_in_the_plans_of_the_picture() -> None:
    labels = [shape.text for shape in three_plans().shapes if isinstance(shape, Label)]
    kilobytes = [int(text.removesuffix(" kB")) for text in labels if text.endswith(" kB")]
    milliseconds = [int(text.removesuffix(" ms")) for text in labels if text.endswith(" ms")]
    assert kilobytes[0] > max(kilobytes[1:])
    assert milliseconds[0] < min(milliseconds[1:])


@pytest.mark.parametrize("name", PICTURES)
def test_every_shape_lies_within_the_picture(name: str) -> None:
    scene = PICTURES[name]()
    for shape in scene.shapes:
        if isinstance(shape, Area):
            assert all(0 <= x <= scene.width and 0 <= y <= scene.height for x, y in shape.points)
