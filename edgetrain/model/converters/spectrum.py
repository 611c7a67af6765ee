"""Fourier transforms of known length, as products with constant matrices of cosines and sines.

Real audio front ends are a few hundred samples long: the product costs little beside what follows, and its gradient is
the transposed product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext
from edgetrain.model.converters.layout import slice_axis
from edgetrain.model.model import Array

_MAXIMUM_ELEMENTS = 1 << 24  # of one matrix


def waves(samples: int, length: int, bins: int) -> tuple[Array, Array]:
    """cos and sin of 2π·n·k / length, (samples, bins), in float64."""
    if samples * bins > _MAXIMUM_ELEMENTS:
        raise CannotConvert(f"a transform of {samples} samples to {bins} bins needs a matrix that is too large")
    # n·k is taken modulo the length first: an angle of many turns would lose its fraction.
    angles = 2 * np.pi * (np.outer(np.arange(samples), np.arange(bins)) % length) / length
    return np.cos(angles), np.sin(angles)


def _constant(array: Array, like: Any) -> Any:
    return relax.const(runtime.tensor(np.ascontiguousarray(array.astype(dtype_of(like)))))


def _length(context: NodeContext, index: int, default: int) -> int:
    values = context.integers(index, "length")
    length = values[0] if values else default
    if length < 1:
        raise CannotConvert(f"its length is {length}")
    return length


def _dft(context: NodeContext) -> Any:
    data = context.required(0)
    rank, parts = len(shape_of(data)), shape_of(data)[-1]
    axes = context.integers(2, "axis")  # an input since opset 20, an attribute before
    axis = (axes[0] if axes else context.attribute("axis", -2 if context.opset >= 20 else 1)) % rank
    if axis == rank - 1 or parts not in (1, 2):
        raise CannotConvert("the last axis holds the real and imaginary parts and is not transformed")
    size = shape_of(data)[axis]
    length = _length(context, 1, size)
    inverse, onesided = bool(context.attribute("inverse", 0)), bool(context.attribute("onesided", 0))
    if inverse and onesided:
        raise CannotConvert("an inverse transform of one side is not supported")
    samples = min(size, length)  # the rest is cut, or is zeros
    cosines, sines = waves(samples, length, length // 2 + 1 if onesided else length)
    sign, norm = (-1.0, 1.0 / length) if inverse else (1.0, 1.0)
    order = [i for i in range(rank) if i not in (axis, rank - 1)]
    rows = context.emit(relax.op.permute_dims(slice_axis(context, data, axis, 0, samples), [*order, rank - 1, axis]))
    real = _transformed(context, rows, 0, cosines * norm)
    imaginary = _transformed(context, rows, 0, -sign * norm * sines)
    if parts == 2:
        real = context.emit(relax.op.add(real, _transformed(context, rows, 1, sign * norm * sines)))
        imaginary = context.emit(relax.op.add(imaginary, _transformed(context, rows, 1, cosines * norm)))
    joined = context.emit(relax.op.concat([real, imaginary], axis=rank - 2))
    places = [*order, rank - 1, axis]
    return context.emit(relax.op.permute_dims(joined, [places.index(i) for i in range(rank)]))


def _transformed(context: NodeContext, rows: Any, part: int, matrix: Array) -> Any:
    """The real (0) or imaginary (1) part, next to last in `rows`, times a matrix; the axis stays, with one element."""
    chosen = slice_axis(context, rows, len(shape_of(rows)) - 2, part, 1)
    return context.emit(relax.op.matmul(chosen, _constant(matrix, rows)))


def _stft(context: NodeContext) -> Any:
    """A strided convolution with one kernel a bin and part: the window times a cosine, or times minus a sine."""
    signal = context.required(0)
    steps, window = context.integers(1, "step"), context.known_input(2)
    if steps is None or steps[0] < 1 or (context.has(2) and window is None):
        raise CannotConvert("its step and window must be constants")
    if len(shape_of(signal)) == 3 and shape_of(signal)[2] != 1:
        raise CannotConvert("only real signals are supported")
    batch, samples = shape_of(signal)[:2]
    length = _length(context, 3, window.size if window is not None else samples)
    bins = length // 2 + 1 if context.attribute("onesided", 1) else length
    cosines, sines = waves(length, length, bins)
    shape = np.ones(length) if window is None else window.reshape(-1).astype(np.float64)
    kernels = np.concatenate([cosines, -sines], axis=1).T * shape
    rows = context.emit(relax.op.reshape(signal, (batch, 1, 1, samples)))
    weight = _constant(kernels.reshape(2 * bins, 1, 1, length), signal)
    parts = context.emit(relax.op.nn.conv2d(rows, weight, strides=[1, steps[0]]))
    frames = shape_of(parts)[3]
    split = context.emit(relax.op.reshape(parts, (batch, 2, bins, frames)))
    return context.emit(relax.op.permute_dims(split, [0, 3, 2, 1]))


SPECTRUM_CONVERTERS: Mapping[str, Converter] = {"DFT": _dft, "STFT": _stft}
