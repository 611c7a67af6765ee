from __future__ import annotations

import io
import sys

import pytest
from PIL import Image

from edgetrain.drawing.raster import dashes, to_png
from edgetrain.drawing.scene import Area, Label, Line, Scene
from edgetrain.errors import UsageError

SQUARE = ((10.0, 10.0), (20.0, 10.0), (20.0, 20.0), (10.0, 20.0))


def drawn(*shapes: Area | Line | Label) -> Image.Image:
    image: Image.Image = Image.open(io.BytesIO(to_png(Scene(width=40, height=30, shapes=shapes))))
    return image.convert("RGB")


def test_areas_are_where_the_scene_has_them() -> None:
    image = drawn(Area(points=SQUARE, color="#ff0000"))
    assert image.size == (80, 60)
    assert image.getpixel((30, 30)) == (255, 0, 0)
    assert image.getpixel((60, 30)) == (255, 255, 255)


def test_what_has_no_opacity_leaves_no_trace() -> None:
    image = drawn(Area(points=SQUARE, color="#000000", opacity=0.0, title="hidden"))
    assert image.getcolors() == [(80 * 60, (255, 255, 255))]


@pytest.mark.parametrize("text", ["peak", "12 µs", "1.5×"])
def test_text_is_drawn_with_letters_and_not_with_the_box_of_a_missing_one(text: str) -> None:
    missing = drawn(Label(at=(1.0, 20.0), text=text[:-1] + "\uffff"))
    image = drawn(Label(at=(1.0, 20.0), text=text))
    assert len(image.getcolors(80 * 60) or ()) > 1
    assert image.tobytes() != missing.tobytes()


def test_dashes_cover_a_line_from_its_start_in_pieces() -> None:
    pieces = list(dashes(((0.0, 0.0), (20.0, 0.0))))
    assert pieces == [((0.0, 0.0), (6.0, 0.0)), ((10.0, 0.0), (16.0, 0.0))]


def test_without_pillow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match="needs Pillow") as caught:
        to_png(Scene(width=1, height=1, shapes=()))
    assert "edgetrain[plot]" in caught.value.fix
    assert "--html" in caught.value.fix
