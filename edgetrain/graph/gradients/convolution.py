"""conv2d in NCHW/OIHW and conv2d_transpose in NCHW/IOHW: any stride, padding, dilation and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import relax, shape_of, te, tirx
from edgetrain.graph.gradients.rule import Backward, Gradients, Rule
from edgetrain.graph.gradients.window import Window, guarded, window_of


def _conv2d(step: Backward) -> Gradients:
    data, weight = step.inputs
    window = window_of(step.attributes, groups=int(step.attributes.groups))
    dy = step.output_gradient
    data_gradient = weight_gradient = None
    if step.wanted[0]:
        data_gradient = step.emit_te(conv2d_data_gradient, dy, weight, shape=shape_of(data), window=window)
    if step.wanted[1]:
        weight_gradient = step.emit_te(conv2d_weight_gradient, data, dy, shape=shape_of(weight), window=window)
    return [data_gradient, weight_gradient]


def conv2d_data_gradient(dy: Any, weight: Any, *, shape: tuple[int, ...], window: Window) -> Any:
    """dX[n, c, h, w] = Σ dY[n, k, y, x] · W[k, c, r, s] over all k, r, s with y·stride + r·dilation − pad = h."""
    out_channels, per_group, rows, columns = shape_of(weight)
    _, _, out_height, out_width = shape_of(dy)
    k = te.reduce_axis((0, out_channels // window.groups), "k")
    r = te.reduce_axis((0, window.tap_count(rows, 0)), "r")
    s = te.reduce_axis((0, window.tap_count(columns, 1)), "s")

    def element(n: Any, c: Any, h: Any, w: Any) -> Any:
        y, filter_row, row_guards = window.meet(h, 0, r, rows, out_height)
        x, filter_column, column_guards = window.meet(w, 1, s, columns, out_width)
        out_channel = tirx.floordiv(c, per_group) * (out_channels // window.groups) + k
        product = dy[n, out_channel, y, x] * weight[out_channel, tirx.floormod(c, per_group), filter_row, filter_column]
        return te.sum(guarded(row_guards + column_guards, product), axis=[k, r, s])

    return te.compute(shape, element, name="conv2d_data_gradient")


def conv2d_weight_gradient(data: Any, dy: Any, *, shape: tuple[int, ...], window: Window) -> Any:
    """dW[k, c, r, s] = Σ dY[n, k, y, x] · X[n, c, y·stride + r·dilation − pad, …] over n, y, x."""
    out_channels, per_group, rows, columns = shape
    batch, _, height, width = shape_of(data)
    _, _, out_height, out_width = shape_of(dy)
    n = te.reduce_axis((0, batch), "n")
    y = te.reduce_axis((0, out_height), "y")
    x = te.reduce_axis((0, out_width), "x")

    def element(k: Any, c: Any, r: Any, s: Any) -> Any:
        h, w = window.source(y, 0, r), window.source(x, 1, s)
        guards = window.inside(h, 0, outputs=out_height, size=height, taps=rows)
        guards += window.inside(w, 1, outputs=out_width, size=width, taps=columns)
        channel = tirx.floordiv(k, out_channels // window.groups) * per_group + c
        return te.sum(guarded(guards, dy[n, k, y, x] * data[n, channel, h, w]), axis=[n, y, x])

    return te.compute(shape, element, name="conv2d_weight_gradient")


def _conv2d_transpose(step: Backward) -> Gradients:
    """A transposed convolution is a convolution's data gradient, so its own data gradient is that convolution.

    Its weight gradient is the convolution's with the roles of data and output gradient swapped.
    """
    data, weight = step.inputs
    attributes, dy = step.attributes, step.output_gradient
    data_gradient = weight_gradient = None
    if step.wanted[0]:
        data_gradient = step.emit(
            relax.op.nn.conv2d(
                dy,
                weight,
                strides=attributes.strides,
                padding=attributes.padding,
                dilation=attributes.dilation,
                groups=attributes.groups,
            )
        )
    if step.wanted[1]:
        window = window_of(attributes, groups=int(attributes.groups))
        weight_gradient = step.emit_te(conv2d_weight_gradient, dy, data, shape=shape_of(weight), window=window)
    return [data_gradient, weight_gradient]


CONVOLUTION_RULES: Mapping[str, Rule] = {
    "relax.nn.conv2d": Rule(backward=_conv2d),
    "relax.nn.conv2d_transpose": Rule(backward=_conv2d_transpose),
}
