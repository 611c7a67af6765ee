"""A scene as PNG, with Pillow, which is optional: a device need not have it."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any

from edgetrain.drawing.scene import Anchor, Area, Dot, Label, Line, Point, Scene, Shape
from edgetrain.errors import UsageError

_OUTPUT_SCALE = 2  # pixels of the file for one of the scene: sharp on today's screens
_SMOOTHING = 2  # drawn larger still and scaled down, since Pillow draws hard edges
_DASH, _GAP = 6.0, 4.0
_MISSING_LETTERS = str.maketrans({"µ": "u", "×": "x"})  # in Pillow's own font
_ANCHORS: dict[Anchor, str] = {"start": "ls", "middle": "ms", "end": "rs"}


def to_png(scene: Scene) -> bytes:
    """The scene as a PNG file of twice its size. Raises `UsageError` where Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise UsageError(
            "a PNG picture needs Pillow, which is not installed",
            why=str(error),
            fix="install it with `pip install 'edgetrain[plot]'`, or write the picture as a page with `--html FILE`",
        ) from error
    scale = _OUTPUT_SCALE * _SMOOTHING
    image = Image.new("RGB", (scene.width * scale, scene.height * scale), "white")
    canvas = ImageDraw.Draw(image, "RGBA")
    for shape in scene.shapes:
        _paint(canvas, shape, scale)
    small = image.resize((scene.width * _OUTPUT_SCALE, scene.height * _OUTPUT_SCALE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, format="PNG", optimize=True)
    return file.getvalue()


def _paint(canvas: Any, shape: Shape, scale: int) -> None:
    match shape:
        case Area():
            if shape.opacity > 0:
                alpha = f"{round(255 * shape.opacity):02x}"
                canvas.polygon(_scaled(shape.points, scale), fill=shape.color + alpha)
        case Line():
            for part in dashes(shape.points) if shape.is_dashed else (shape.points,):
                canvas.line(_scaled(part, scale), fill=shape.color, width=round(shape.width * scale), joint="curve")
        case Dot():
            (x, y), radius = shape.center, shape.radius
            canvas.ellipse(_scaled(((x - radius, y - radius), (x + radius, y + radius)), scale), fill=shape.color)
        case Label():
            bold = max(1, scale // 4) if shape.is_bold else 0  # Pillow's own font has no bold face
            canvas.text(
                _scaled((shape.at,), scale)[0],
                shape.text.translate(_MISSING_LETTERS),
                fill=shape.color,
                font=_font(shape.size * scale),
                anchor=_ANCHORS[shape.anchor],
                stroke_width=bold,
                stroke_fill=shape.color,
            )


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)  # comes with Pillow: the same letters on every machine


def _scaled(points: tuple[Point, ...], scale: int) -> list[Point]:
    return [(x * scale, y * scale) for x, y in points]


def dashes(points: tuple[Point, ...]) -> Iterator[tuple[Point, Point]]:
    """The dashes of a line, corner to corner: each segment begins with a dash."""
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        at = 0.0
        while at < length:
            end = min(at + _DASH, length)
            yield (
                (x1 + (x2 - x1) * at / length, y1 + (y2 - y1) * at / length),
                (x1 + (x2 - x1) * end / length, y1 + (y2 - y1) * end / length),
            )
            at += _DASH + _GAP
