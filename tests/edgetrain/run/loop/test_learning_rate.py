from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.errors import UsageError
from edgetrain.run.loop.learning_rate import SCHEDULES, LearningRate, learning_rate

rates = st.builds(
    LearningRate,
    peak=st.floats(1e-6, 10.0),
    schedule=st.sampled_from(sorted(SCHEDULES)),
    warmup_steps=st.integers(0, 20),
    final_fraction=st.floats(0.0, 1.0),
    step_every=st.integers(1, 20),
    step_gamma=st.floats(0.1, 1.0),
)


@given(settings=rates, total_steps=st.integers(1, 100))
def test_every_step_has_a_rate_above_zero_and_at_most_the_peak(settings: LearningRate, total_steps: int) -> None:
    for step in range(total_steps):
        assert 0 < learning_rate(settings, step, total_steps=total_steps) <= settings.peak * (1 + 1e-12)


@given(settings=rates, total_steps=st.integers(1, 100))
def test_rates_rise_through_the_warm_up_and_never_after(settings: LearningRate, total_steps: int) -> None:
    values = [learning_rate(settings, step, total_steps=total_steps) for step in range(total_steps)]
    warm = min(settings.warmup_steps, total_steps)
    assert all(a < b for a, b in pairwise(values[:warm]))
    assert all(a >= b for a, b in pairwise(values[warm:]))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (LearningRate(peak=2.0), [2, 2, 2, 2, 2]),
        (LearningRate(peak=2.0, schedule="linear"), [2, 1.5, 1, 0.5, 0]),
        (LearningRate(peak=2.0, schedule="linear", final_fraction=0.5), [2, 1.75, 1.5, 1.25, 1]),
        (LearningRate(peak=2.0, schedule="cosine"), [2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5), 0]),
        (LearningRate(peak=2.0, schedule="step", step_every=2), [2, 2, 0.2, 0.2, 0.02]),
        (LearningRate(peak=2.0, schedule="linear", warmup_steps=2), [1, 2, 2, 1, 0]),
    ],
)
def test_schedules_are_what_their_names_say(settings: LearningRate, expected: list[float]) -> None:
    """Four steps; the fifth value is where the schedule leads."""
    values = [learning_rate(settings, step, total_steps=4) for step in range(5)]
    assert values == pytest.approx(expected, abs=1e-12)


def test_every_mistake_is_listed_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        LearningRate(peak=-1.0, schedule="cosin", warmup_steps=-2, final_fraction=3.0, step_gamma=0.0)
    for part in ("-1.0", "cosin", "-2", "3.0", "step_gamma"):
        assert part in caught.value.what
    assert "`cosine`" in caught.value.fix


def test_the_step_schedule_needs_its_length() -> None:
    with pytest.raises(UsageError, match="step_every"):
        LearningRate(peak=1.0, schedule="step")
