from __future__ import annotations

import numpy as np
import pytest

from edgetrain.run.files.thinned import ThinnedCurve


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 21, 999, 5000])
def test_a_curve_of_any_length_keeps_its_extremes_and_stays_small(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    curve = ThinnedCurve(10)
    for step, value in enumerate(values):
        curve.add(float(step), float(value))
    points = curve.points
    assert len(points) <= 20
    assert [x for x, _ in points] == sorted({x for x, _ in points})
    assert all(y == values[int(x)] for x, y in points)
    if count:
        heights = [y for _, y in points]
        assert (min(heights), max(heights)) == (values.min(), values.max())
        last_run = [int(x) for x, _ in points][-1]
        assert last_run >= count - 1 - 2 * max(1, count // 5)  # what is new is seen


def test_few_points_are_all_there() -> None:
    curve = ThinnedCurve(10)
    for step in range(10):
        curve.add(step, -step)
    assert curve.points == tuple((step, -step) for step in range(10))
