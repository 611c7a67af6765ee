from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from edgetrain.drawing.pixels import pixels_to_png, pixels_to_uri


@pytest.mark.parametrize("shape", [(3, 5), (7, 2, 3), (1, 1)])
def test_pillow_reads_back_every_pixel(shape: tuple[int, ...]) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    assert np.array_equal(np.asarray(image.open(io.BytesIO(pixels_to_png(pixels)))), pixels)


def test_a_uri_holds_the_file() -> None:
    pixels = np.zeros((2, 2), np.uint8)
    kind, _, text = pixels_to_uri(pixels).partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(text) == pixels_to_png(pixels)


def test_floats_are_no_picture() -> None:
    with pytest.raises(ValueError, match="no picture"):
        pixels_to_png(np.zeros((2, 2)))  # type: ignore[arg-type]
