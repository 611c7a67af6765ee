from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgetrain.drawing.axes import Axis, span, ticks


@given(low=st.floats(-1e5, 1e5), width=st.floats(1e-3, 1e5))
def test_ticks_lie_within_the_axis_and_are_few(low: float, width: float) -> None:
    values = ticks(low, low + width)
    slack = 1e-6 * width + 1e-9 * abs(low)
    assert 1 <= len(values) <= 11
    assert all(low - slack <= value <= low + width + slack for value in values)


def test_ticks_are_round() -> None:
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(3.0, 47.0) == [10.0, 20.0, 30.0, 40.0]


@given(values=st.lists(st.floats(-1e9, 1e9), max_size=5))
def test_a_span_is_never_empty_and_holds_every_value(values: list[float]) -> None:
    low, high = span(values)
    assert low < high
    assert all(low <= value <= high for value in values)


def test_an_axis_maps_its_ends_to_its_pixels() -> None:
    axis = Axis(low=2.0, high=4.0, start=100.0, end=0.0)
    assert [axis.pixel(value) for value in (2.0, 3.0, 4.0)] == [100.0, 50.0, 0.0]
