"""GridSample reads each output at a place of its own, a weighted sum of the elements round it; AffineGrid makes places.

Built from gathers, whose gradient adds up at the elements, and from weights, whose gradient goes to the places. A place
is a row and a column, both (batch, places); images are (batch, channels, elements).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext
from edgetrain.model.converters.layout import slice_axis
from edgetrain.model.model import Array

_NEAREST, _LINEAR = "nearest", ("bilinear", "linear")
_MAXIMUM_PLACES = 1 << 24
_PADDINGS = ("zeros", "border", "reflection")


def _grid_sample(context: NodeContext) -> Any:
    image, grid = context.required(0), context.required(1)
    mode, padding = context.attribute("mode", "bilinear"), context.attribute("padding_mode", "zeros")
    if len(shape_of(image)) != 4:
        raise CannotConvert("only images with two spatial axes can be sampled")
    if mode != _NEAREST and mode not in _LINEAR:
        raise CannotConvert(f"mode `{mode}` is not supported, only `nearest` and `linear`")
    if padding not in _PADDINGS:
        raise CannotConvert(f"padding mode `{padding}` is unknown")
    batch, channels, height, width = shape_of(image)
    _, rows, columns, _ = shape_of(grid)
    flat = context.emit(relax.op.reshape(image, (batch, channels, height * width)))
    # The grid's last axis is (x, y): columns first.
    x, y = (_place(context, grid, axis, size) for axis, size in ((0, width), (1, height)))
    corners_y, corners_x = (_neighbours(context, place, size) for place, size in ((y, height), (x, width)))
    total = None
    for (row, row_weight), (column, column_weight) in itertools.product(corners_y, corners_x):
        read = _read(context, flat, row, column, width)
        for weight in (row_weight, column_weight):
            if weight is not None:
                read = context.emit(relax.op.multiply(read, context.emit(relax.op.expand_dims(weight, 1))))
        total = read if total is None else context.emit(relax.op.add(total, read))
    return context.emit(relax.op.reshape(total, (batch, channels, rows, columns)))


def _place(context: NodeContext, grid: Any, axis: int, size: int) -> Any:
    """Where the grid's −1 … 1 lies between the elements 0 … size − 1, put back inside as the padding mode says."""
    batch, rows, columns, _ = shape_of(grid)
    part = context.emit(relax.op.reshape(slice_axis(context, grid, 3, axis, 1), (batch, rows * columns)))
    aligned = bool(context.attribute("align_corners", 0))
    scale, shift = ((size - 1) / 2, (size - 1) / 2) if aligned else (size / 2, (size - 1) / 2)
    scaled = context.emit(relax.op.multiply(part, context.number(scale, part)))
    place = context.emit(relax.op.add(scaled, context.number(shift, part)))
    padding = context.attribute("padding_mode", "zeros")
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
        place = _reflected(context, place, low, span)
    return place if padding == "zeros" else context.emit(relax.op.clip(place, 0.0, size - 1.0))


def _reflected(context: NodeContext, place: Any, low: float, span: float) -> Any:
    """Back and forth between `low` and `low + span`."""
    if span == 0:
        return context.emit(relax.op.multiply(place, context.number(0.0, place)))
    distance = context.emit(relax.op.abs(context.emit(relax.op.subtract(place, context.number(low, place)))))
    turns = context.emit(relax.op.floor(context.emit(relax.op.divide(distance, context.number(2 * span, place)))))
    whole = context.emit(relax.op.multiply(turns, context.number(2 * span, place)))
    within = context.emit(relax.op.subtract(distance, whole))
    back = context.emit(relax.op.subtract(context.number(2 * span, place), within))
    return context.emit(relax.op.add(context.emit(relax.op.minimum(within, back)), context.number(low, place)))


def _neighbours(context: NodeContext, place: Any, size: int) -> list[tuple[Any, Any]]:
    """The elements that a place along one axis reads, inside the image, each with its weight; None is 1."""
    if context.attribute("mode", "bilinear") == _NEAREST:
        nearest = context.emit(relax.op.round(place))
        return [_inside(context, nearest, None, size)]
    before = context.emit(relax.op.floor(place))
    after = context.emit(relax.op.add(before, context.number(1.0, place)))
    share = context.emit(relax.op.subtract(place, before))
    rest = context.emit(relax.op.subtract(context.number(1.0, place), share))
    return [_inside(context, before, rest, size), _inside(context, after, share, size)]


def _inside(context: NodeContext, element: Any, weight: Any, size: int) -> tuple[Any, Any]:
    """The element as an index that exists; one that did not weighs nothing."""
    kept = context.emit(relax.op.clip(element, 0.0, size - 1.0))
    if context.attribute("padding_mode", "zeros") == "zeros":
        exists = context.emit(relax.op.astype(context.emit(relax.op.equal(kept, element)), dtype_of(element)))
        weight = exists if weight is None else context.emit(relax.op.multiply(weight, exists))
    return context.emit(relax.op.astype(kept, "int64")), weight


def _read(context: NodeContext, flat: Any, row: Any, column: Any, width: int) -> Any:
    batch, channels, _ = shape_of(flat)
    start = context.emit(relax.op.multiply(row, relax.const(width, "int64")))
    index = context.emit(relax.op.expand_dims(context.emit(relax.op.add(start, column)), 1))
    everywhere = context.emit(relax.op.broadcast_to(index, (batch, channels, shape_of(index)[2])))
    return context.emit(relax.op.gather_elements(flat, everywhere, 2))


def _affine_grid(context: NodeContext) -> Any:
    """θ · (x, y, 1) for the places of an image: a product with a constant matrix of all of them."""
    theta, sizes = context.required(0), context.integers(1, "sizes")
    if sizes is None or len(sizes) != 4:
        raise CannotConvert("only grids with two spatial axes are supported")
    height, width = sizes[2:]
    if not 0 < height * width <= _MAXIMUM_PLACES:
        raise CannotConvert(f"a grid of {height} by {width} places is empty or too large")
    aligned = bool(context.attribute("align_corners", 0))
    y, x = np.meshgrid(_places(height, aligned), _places(width, aligned), indexing="ij")
    places = np.stack([x, y, np.ones_like(x)], axis=-1).reshape(1, height * width, 3)
    constant = relax.const(runtime.tensor(places.astype(dtype_of(theta))))
    turned = context.emit(relax.op.permute_dims(theta, [0, 2, 1]))
    grid = context.emit(relax.op.matmul(constant, turned))
    return context.emit(relax.op.reshape(grid, (shape_of(theta)[0], height, width, 2)))


def _places(size: int, aligned: bool) -> Array:
    """The middles of `size` elements between −1 and 1, or from end to end where corners are aligned."""
    if aligned:
        return np.linspace(-1, 1, size)
    return np.asarray((2 * np.arange(size) + 1) / size - 1)


SAMPLING_CONVERTERS: Mapping[str, Converter] = {"AffineGrid": _affine_grid, "GridSample": _grid_sample}
