from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.run.loop.early_stopping import Best, judge


@pytest.mark.parametrize("higher_is_better", [True, False])
@given(values=st.lists(st.integers(0, 5), min_size=1))
def test_the_best_is_the_first_of_the_best_values(higher_is_better: bool, values: list[int]) -> None:
    best: Best | None = None
    for epoch, value in enumerate(values, start=1):
        best = judge(best, value=value, step=10 * epoch, epoch=epoch, higher_is_better=higher_is_better)
    index = values.index((max if higher_is_better else min)(values))
    assert best == Best(
        value=values[index], step=10 * (index + 1), epoch=index + 1, stale_epochs=len(values) - index - 1
    )


def test_a_gain_must_exceed_the_least_gain() -> None:
    best = Best(value=0.5, step=1, epoch=1)
    small = judge(best, value=0.55, step=2, epoch=2, higher_is_better=True, least_gain=0.1)
    large = judge(best, value=0.65, step=2, epoch=2, higher_is_better=True, least_gain=0.1)
    assert (small.value, small.stale_epochs) == (0.5, 1)
    assert (large.value, large.stale_epochs) == (0.65, 0)
