"""2-D pools. Where several inputs tie for a maximum, the first one gets the gradient, as in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import shape_of, te, tirx
from edgetrain.graph.gradients.rule import Backward, Done, Forward, Gradients, Rule
from edgetrain.graph.gradients.window import Window, end_pads_of, guarded, window_of

_LARGEST_INT8 = 127


def _kernel(attributes: Any) -> tuple[int, int]:
    return int(attributes.pool_size[0]), int(attributes.pool_size[1])


def _max_pool2d(step: Forward) -> Done:
    """Who wins is found at once, a byte for each output: the input need not be kept for it."""
    window, kernel = window_of(step.attributes), _kernel(step.attributes)
    pooled = step.builder.emit(step.call)
    winners = step.emit_te(max_pool2d_winner, step.inputs[0], pooled, kernel=kernel, window=window)
    return Done(outputs=(pooled,), residuals=winners)


def _max_pool2d_backward(step: Backward) -> Gradients:
    shape, kernel, window = shape_of(step.inputs[0]), _kernel(step.attributes), window_of(step.attributes)
    return [
        step.emit_te(
            max_pool2d_gradient, step.residuals, step.output_gradient, shape=shape, kernel=kernel, window=window
        )
    ]


def max_pool2d_winner(data: Any, pooled: Any, *, kernel: tuple[int, int], window: Window) -> Any:
    """The number of the tap (row by row) that first holds the window's maximum, in a byte where the numbers fit."""
    _, _, height, width = shape_of(data)
    batch, channels, out_height, out_width = shape_of(pooled)
    rows, columns = kernel
    r, s = te.reduce_axis((0, rows), "r"), te.reduce_axis((0, columns), "s")
    number = "int8" if rows * columns <= _LARGEST_INT8 else "int32"
    nobody = tirx.const(rows * columns, number)

    def element(n: Any, c: Any, y: Any, x: Any) -> Any:
        h, w = window.source(y, 0, r), window.source(x, 1, s)
        guards = window.inside(h, 0, outputs=out_height, size=height, taps=rows)
        guards += window.inside(w, 1, outputs=out_width, size=width, taps=columns)
        tap = tirx.Cast(number, r * columns + s)
        # Select, not if_then_else: vectorised lanes differ in the condition.
        hit = tirx.Select(data[n, c, h, w] == pooled[n, c, y, x], tap, nobody)
        return te.min(guarded(guards, hit, nobody), axis=[r, s])

    return te.compute((batch, channels, out_height, out_width), element, name="max_pool2d_winner")


def max_pool2d_gradient(
    winners: Any, dy: Any, *, shape: tuple[int, ...], kernel: tuple[int, int], window: Window
) -> Any:
    _, _, out_height, out_width = shape_of(dy)
    r = te.reduce_axis((0, window.tap_count(kernel[0], 0)), "r")
    s = te.reduce_axis((0, window.tap_count(kernel[1], 1)), "s")

    def element(n: Any, c: Any, h: Any, w: Any) -> Any:
        y, row, row_guards = window.meet(h, 0, r, kernel[0], out_height)
        x, column, column_guards = window.meet(w, 1, s, kernel[1], out_width)
        won = winners[n, c, y, x] == tirx.Cast(winners.dtype, row * kernel[1] + column)
        share = tirx.Select(won, dy[n, c, y, x], tirx.const(0, dy.dtype))
        return te.sum(guarded(row_guards + column_guards, share), axis=[r, s])

    return te.compute(shape, element, name="max_pool2d_gradient")


def _avg_pool2d(step: Backward) -> Gradients:
    gradient = step.emit_te(
        avg_pool2d_gradient,
        step.output_gradient,
        shape=shape_of(step.inputs[0]),
        kernel=_kernel(step.attributes),
        window=window_of(step.attributes),
        end_pads=end_pads_of(step.attributes),
        count_padding=bool(step.attributes.count_include_pad),
    )
    return [gradient]


def avg_pool2d_gradient(
    dy: Any,
    *,
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    window: Window,
    end_pads: tuple[int, int],
    count_padding: bool,
) -> Any:
    _, _, height, width = shape
    _, _, out_height, out_width = shape_of(dy)
    r = te.reduce_axis((0, window.tap_count(kernel[0], 0)), "r")
    s = te.reduce_axis((0, window.tap_count(kernel[1], 1)), "s")

    def counted(output: Any, axis: int, size: int) -> Any:
        """How many taps of the window at `output` the mean is over.

        A tap past the padded input exists only through `ceil_mode` and never counts, as in PyTorch.
        """
        first = -window.pads[axis] if count_padding else 0
        end = size + end_pads[axis] if count_padding else size
        return window.taps_between(output, axis, kernel[axis], first, end)

    def element(n: Any, c: Any, h: Any, w: Any) -> Any:
        y, _, row_guards = window.meet(h, 0, r, kernel[0], out_height)
        x, _, column_guards = window.meet(w, 1, s, kernel[1], out_width)
        count = counted(y, 0, height) * counted(x, 1, width)
        share = dy[n, c, y, x] / tirx.Cast(dy.dtype, tirx.max(count, 1))
        return te.sum(guarded(row_guards + column_guards, share), axis=[r, s])

    return te.compute(shape, element, name="avg_pool2d_gradient")


def _adaptive_avg_pool2d(step: Backward) -> Gradients:
    return [
        step.emit_te(adaptive_avg_pool2d_gradient, step.output_gradient, shape=shape_of(step.inputs[0])),
    ]


def adaptive_avg_pool2d_gradient(dy: Any, *, shape: tuple[int, ...]) -> Any:
    """Output y averages the rows from ⌊y · H / Y⌋ to ⌈(y + 1) · H / Y⌉, so an input is in one to three of them."""
    sizes, outputs = shape[2:], shape_of(dy)[2:]
    y, x = (te.reduce_axis((0, extent), name) for extent, name in zip(outputs, "yx", strict=True))

    def rows(output: Any, axis: int) -> tuple[Any, Any]:
        begin = tirx.floordiv(output * sizes[axis], outputs[axis])
        end = tirx.floordiv((output + 1) * sizes[axis] + outputs[axis] - 1, outputs[axis])
        return begin, end

    def element(n: Any, c: Any, h: Any, w: Any) -> Any:
        top, bottom = rows(y, 0)
        left, right = rows(x, 1)
        inside = tirx.all(h >= top, h < bottom, w >= left, w < right)
        share = dy[n, c, y, x] / tirx.Cast(dy.dtype, (bottom - top) * (right - left))
        return te.sum(tirx.Select(inside, share, tirx.const(0, dy.dtype)), axis=[y, x])

    return te.compute(shape, element, name="adaptive_avg_pool2d_gradient")


POOLING_RULES: Mapping[str, Rule] = {
    "relax.nn.adaptive_avg_pool2d": Rule(backward=_adaptive_avg_pool2d),
    "relax.nn.max_pool2d": Rule(forward=_max_pool2d, backward=_max_pool2d_backward),
    "relax.nn.avg_pool2d": Rule(backward=_avg_pool2d),
}
