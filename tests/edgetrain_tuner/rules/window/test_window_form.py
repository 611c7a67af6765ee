"""Which conditions of padding may go once only the inside of a tensor is read, and which must stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, tirx
from tvm.ir import TensorLoad

from edgetrain.graph.gradients.convolution import conv2d_data_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.window.form import ChannelWindow, find_window

SIZE, TAPS = 12, 3


def _window(condition: Callable[[Any, Any, Any], Any]) -> ChannelWindow | None:
    """Of y[c, t] = Σ w[c, k] · x[c, t + k − 1] with a condition on t, k and the place that is read."""
    x, w = te.placeholder((4, SIZE), name="x"), te.placeholder((4, TAPS), name="w")
    k = te.reduce_axis((0, TAPS), "k")

    def element(c: Any, t: Any) -> Any:
        place = t + k - 1
        inside = tirx.all(place >= 0, place < SIZE, condition(t, k, place))
        value = tirx.if_then_else(inside, x[c, place], tirx.FloatImm("float32", 0.0))
        return te.sum(value * w[c, k], axis=k)

    contraction = find(te.create_prim_func([x, w, te.compute((4, SIZE), element)]))
    assert contraction is not None
    return find_window(contraction)


def test_being_inside_is_no_condition_any_more() -> None:
    window = _window(lambda t, k, place: place >= 0)
    assert window is not None
    assert isinstance(window.b, TensorLoad)
    assert isinstance(window.a, TensorLoad)
    assert (window.columns.low, window.columns.span, window.columns.stride) == (-1, 3, 1)


def test_a_condition_on_a_part_of_the_inside_stays() -> None:
    window = _window(lambda t, k, place: place < SIZE - 2)
    assert window is not None
    assert not isinstance(window.b, TensorLoad)


def test_a_condition_on_the_tap_alone_goes_to_the_other_factor() -> None:
    window = _window(lambda t, k, place: k < TAPS - 1)
    assert window is not None
    assert isinstance(window.b, TensorLoad)
    assert not isinstance(window.a, TensorLoad)


@pytest.mark.parametrize("condition", [lambda t, k, place: t + 2 * k < 9, lambda t, k, place: t < 9])
def test_a_condition_on_more_than_the_place_is_not_taken_apart(condition: Callable[[Any, Any, Any], Any]) -> None:
    assert _window(condition) is None


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_phases_of_a_stride_belong_to_their_rows_and_columns(padding: int) -> None:
    """Whether a phase shifts what is read or not depends on the padding."""
    outputs = (SIZE + 2 * padding - TAPS) // 2 + 1
    gradient = te.placeholder((2, 6, outputs, outputs), name="gradient")
    weight = te.placeholder((6, 1, TAPS, TAPS), name="weight")
    geometry = Window(strides=(2, 2), pads=(padding, padding), dilation=(1, 1), groups=6)
    result = conv2d_data_gradient(gradient, weight, shape=(2, 6, SIZE, SIZE), window=geometry)
    contraction = find(te.create_prim_func([gradient, weight, result]))
    assert contraction is not None
    window = find_window(contraction)
    assert window is not None
    assert (window.rows.phases, window.columns.phases) == (2, 2)
    assert [axis.extent for axis in (*window.channels, *window.images)] == [6, 2]
    assert window.slides_over_result
