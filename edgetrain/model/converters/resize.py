"""Resize. Each axis is a product with a small constant matrix, so the gradient is the transposed product.

An integer upsampling by the nearest neighbour, by far the commonest, is a broadcast instead: its gradient is a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext
from edgetrain.model.model import Array

MAXIMUM_ELEMENTS = 1 << 26  # of an interpolation matrix
# Output coordinates -> input coordinates, as ONNX defines them: (places, scale, outputs, inputs).
Coordinates = Callable[[Array, float, int, int], Array]


def _half_pixel(x: Array, scale: float, _outputs: int, _inputs: int) -> Array:
    return np.asarray((x + 0.5) / scale - 0.5)


def _symmetric(x: Array, scale: float, outputs: int, inputs: int) -> Array:
    adjustment = outputs / (scale * inputs)
    return np.asarray(inputs / 2 * (1 - adjustment) + (x + 0.5) / scale - 0.5)


COORDINATES: Mapping[str, Coordinates] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda x, s, o, i: _half_pixel(x, s, o, i) if o > 1 else np.zeros_like(x),
    "align_corners": lambda x, _s, o, i: x * (i - 1) / (o - 1) if o > 1 else np.zeros_like(x),
    "asymmetric": lambda x, s, _o, _i: x / s,
}
_NEAREST: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic_weights(fraction: Array, a: float) -> Array:
    """Keys' cubic convolution kernel at the four neighbours."""
    distances = np.stack([fraction + 1, fraction, 1 - fraction, 2 - fraction])
    near = (a + 2) * distances**3 - (a + 3) * distances**2 + 1
    far = a * distances**3 - 5 * a * distances**2 + 8 * a * distances - 4 * a
    return np.where(distances <= 1, near, far)


def _is_old(context: NodeContext) -> bool:
    """`Upsample`, and `Resize` as it first was, say neither how coordinates map nor how they round."""
    return context.node.op_type == "Upsample" or context.opset < 11


def interpolation_matrix(context: NodeContext, inputs: int, outputs: int, scale: float) -> Array:
    """(outputs, inputs): how much of each input each output holds."""
    transform = context.attribute("coordinate_transformation_mode", "asymmetric" if _is_old(context) else "half_pixel")
    if transform not in COORDINATES:
        raise CannotConvert(f"coordinate mode `{transform}` is not supported")
    places = COORDINATES[transform](np.arange(outputs, dtype=np.float64), scale, outputs, inputs)
    mode = context.attribute("mode", "nearest")
    if mode == "nearest":
        rounding = context.attribute("nearest_mode", "floor" if _is_old(context) else "round_prefer_floor")
        taps = _NEAREST[rounding](places)[None]
        weights = np.ones_like(taps)
    else:
        base = np.floor(places)
        fraction = places - base
        if mode == "linear":
            taps, weights = np.stack([base, base + 1]), np.stack([1 - fraction, fraction])
        else:
            taps = base + np.arange(-1, 3)[:, None]
            weights = _cubic_weights(fraction, float(context.attribute("cubic_coeff_a", -0.75)))
            if context.attribute("exclude_outside", 0):
                weights = np.where((taps >= 0) & (taps < inputs), weights, 0.0)
                weights = weights / weights.sum(0)
    matrix = np.zeros((outputs, inputs))
    rows = np.broadcast_to(np.arange(outputs), taps.shape)
    np.add.at(matrix, (rows, np.clip(taps, 0, inputs - 1).astype(np.int64)), weights)
    return matrix


def _targets(context: NodeContext, shape: tuple[int, ...]) -> tuple[list[int], list[float]]:
    """Output sizes and scales for every axis."""
    if context.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise CannotConvert("keeping the aspect ratio is not supported")
    axes = [a % len(shape) for a in context.attribute("axes", range(len(shape)))]
    sizes, scales = list(shape), [1.0] * len(shape)
    wanted = None if _is_old(context) else context.integers(3, "sizes")
    if wanted:
        for axis, size in zip(axes, wanted, strict=True):
            sizes[axis], scales[axis] = size, size / shape[axis]
        return sizes, scales
    given = context.known_input(1 if _is_old(context) else 2)
    if given is None and context.attribute("scales", None) is not None:
        given = np.array(context.attribute("scales", None))
    if given is None:
        raise CannotConvert("its sizes depend on data; they must be constants")
    for axis, scale in zip(axes, given.reshape(-1).tolist(), strict=True):
        sizes[axis], scales[axis] = int(np.floor(shape[axis] * scale)), float(scale)
    return sizes, scales


def _resize(context: NodeContext) -> Any:
    if context.attribute("antialias", 0):
        raise CannotConvert("antialiasing is not supported")
    data = context.input(0)
    shape = shape_of(data)
    sizes, scales = _targets(context, shape)
    for axis, (inputs, outputs) in enumerate(zip(shape, sizes, strict=True)):
        if inputs == outputs and scales[axis] == 1.0:
            continue
        if not 0 < inputs * outputs <= MAXIMUM_ELEMENTS:
            raise CannotConvert(f"it resizes {inputs} elements to {outputs}")
        matrix = interpolation_matrix(context, inputs, outputs, scales[axis])
        repeats = outputs // inputs
        if np.array_equal(matrix, np.repeat(np.eye(inputs), repeats, axis=0)):
            data = _repeat(context, data, axis, repeats)
        else:
            data = _multiply_axis(context, data, axis, matrix)
    return data


def _repeat(context: NodeContext, data: Any, axis: int, repeats: int) -> Any:
    shape = shape_of(data)
    before, after = shape[: axis + 1], shape[axis + 1 :]
    thin = context.emit(relax.op.reshape(data, (*before, 1, *after)))
    wide = context.emit(relax.op.broadcast_to(thin, (*before, repeats, *after)))
    return context.emit(relax.op.reshape(wide, (*shape[:axis], shape[axis] * repeats, *after)))


def _multiply_axis(context: NodeContext, data: Any, axis: int, matrix: Array) -> Any:
    rank = len(shape_of(data))
    dtype = dtype_of(data)
    if axis == rank - 1:
        return context.emit(relax.op.matmul(data, _constant(matrix.T, dtype)))
    if axis == rank - 2:
        return context.emit(relax.op.matmul(_constant(matrix, dtype), data))
    order = [a for a in range(rank) if a != axis] + [axis]
    moved = context.emit(relax.op.permute_dims(data, order))
    product = context.emit(relax.op.matmul(moved, _constant(matrix.T, dtype)))
    return context.emit(relax.op.permute_dims(product, [order.index(a) for a in range(rank)]))


def _constant(matrix: Array, dtype: str) -> Any:
    return relax.const(runtime.tensor(np.ascontiguousarray(matrix, dtype=dtype)))


RESIZE_CONVERTERS: Mapping[str, Converter] = {"Resize": _resize, "Upsample": _resize}
