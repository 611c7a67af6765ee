"""A picture as a list of shapes, in pixels from the top left, the first one at the bottom of the pile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal
from xml.sax.saxutils import escape

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A filled polygon. `title` is what a reader sees who points at it; `opacity` 0 shows nothing but that."""

    points: tuple[Point, ...]
    color: str
    opacity: float = 1.0
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    points: tuple[Point, ...]
    color: str
    width: float = 1.0
    is_dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    center: Point
    radius: float
    color: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """`at` is the left, middle or right end of the baseline."""

    at: Point
    text: str
    anchor: Anchor = "start"
    color: str = "#222222"
    size: int = 12
    is_bold: bool = False


Shape = Area | Line | Dot | Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Shapes on white. Colours are `#rrggbb`."""

    width: int
    height: int
    shapes: tuple[Shape, ...]


def below(upper: Scene, lower: Scene) -> Scene:
    """Two scenes as one, the second below the first."""
    moved = tuple(_moved(shape, upper.height) for shape in lower.shapes)
    return Scene(
        width=max(upper.width, lower.width),
        height=upper.height + lower.height,
        shapes=(*upper.shapes, *moved),
    )


def _moved(shape: Shape, down: float) -> Shape:
    match shape:
        case Area() | Line():
            return replace(shape, points=tuple((x, y + down) for x, y in shape.points))
        case Dot():
            return replace(shape, center=(shape.center[0], shape.center[1] + down))
        case Label():
            return replace(shape, at=(shape.at[0], shape.at[1] + down))


def to_svg(scene: Scene) -> str:
    """The scene as an SVG element: a file of its own, or part of a page. The same scene gives the same bytes."""
    width, height = scene.width, scene.height
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *map(_element, scene.shapes),
            "</svg>\n",
        )
    )


def _element(shape: Shape) -> str:
    match shape:
        case Area():
            opacity = f' fill-opacity="{shape.opacity:g}"' if shape.opacity != 1 else ""
            return _titled("polygon", f'points="{_pairs(shape.points)}" fill="{shape.color}"{opacity}', shape.title)
        case Line():
            dashes = ' stroke-dasharray="6 4"' if shape.is_dashed else ""
            return (
                f'<polyline points="{_pairs(shape.points)}" fill="none" stroke="{shape.color}" '
                f'stroke-width="{shape.width:g}"{dashes}/>'
            )
        case Dot():
            x, y = shape.center
            attributes = f'cx="{x:.1f}" cy="{y:.1f}" r="{shape.radius:g}" fill="{shape.color}"'
            return _titled("circle", attributes, shape.title)
        case Label():
            x, y = shape.at
            weight = ' font-weight="bold"' if shape.is_bold else ""
            return (
                f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{shape.anchor}" font-size="{shape.size}" '
                f'fill="{shape.color}"{weight}>{escape(shape.text)}</text>'
            )


def _titled(tag: str, attributes: str, title: str) -> str:
    return f"<{tag} {attributes}><title>{escape(title)}</title></{tag}>" if title else f"<{tag} {attributes}/>"


def _pairs(points: tuple[Point, ...]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
