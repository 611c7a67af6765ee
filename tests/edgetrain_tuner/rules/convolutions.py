"""Convolutions and their gradients, and the registers that they are written for."""

from __future__ import annotations

from typing import Any

from tvm import te, topi

from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner.machine import Machine

WIDE = Machine(vector_bits=256, vector_registers=16, cores=2)
NARROW = Machine(vector_bits=128, vector_registers=32, cores=1)
WIDEST = Machine(vector_bits=512, vector_registers=32, cores=1)


def convolution(
    part: str,
    batch: int,
    channels: int,
    size: tuple[int, int],
    filters: int,
    *,
    taps: int = 3,
    stride: int = 1,
    dilation: int = 1,
    pad: int = 1,
) -> Any:
    window = Window(strides=(stride,) * 2, pads=(pad,) * 2, dilation=(dilation,) * 2)
    outputs = tuple((n + 2 * pad - dilation * (taps - 1) - 1) // stride + 1 for n in size)
    data = te.placeholder((batch, channels, *size), name="data")
    weight = te.placeholder((filters, channels, taps, taps), name="weight")
    gradient = te.placeholder((batch, filters, *outputs), name="gradient")
    if part == "forward":
        return te.create_prim_func([data, weight, topi.nn.conv2d_nchw(data, weight, stride, pad, dilation)])
    if part == "data":
        shape = (batch, channels, *size)
        return te.create_prim_func(
            [gradient, weight, conv2d_data_gradient(gradient, weight, shape=shape, window=window)]
        )
    shape = (filters, channels, taps, taps)
    return te.create_prim_func([data, gradient, conv2d_weight_gradient(data, gradient, shape=shape, window=window)])
