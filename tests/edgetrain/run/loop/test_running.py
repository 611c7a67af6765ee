from __future__ import annotations

import math
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from edgetrain.run.loop.running import ExactSum, StepSeconds

_NUMBERS = st.lists(st.floats(-1e300, 1e300, allow_nan=False), max_size=50)


@given(values=_NUMBERS, stop=st.integers(0, 50))
def test_a_sum_that_was_stopped_anywhere_has_the_bits_of_one_that_was_not(values: list[float], stop: int) -> None:
    whole, before = ExactSum(), ExactSum()
    for value in values:
        whole.add(value)
    for value in values[:stop]:
        before.add(value)
    after = ExactSum(before.parts)
    for value in values[stop:]:
        after.add(value)
    assert after.parts == whole.parts
    assert whole.value == math.fsum(values)


def test_a_sum_of_many_values_is_a_few_numbers() -> None:
    total = ExactSum()
    for number in range(1, 20_000):
        total.add(1 / number)
    assert len(total.parts) < 5


def test_the_median_is_of_all_steps_and_of_the_latest_where_there_are_many() -> None:
    seconds = StepSeconds()
    assert seconds.median is None
    for number in range(1000):
        seconds.add(float(number))
    assert seconds.median == median(range(1000))
    for number in range(1000, 5000):
        seconds.add(float(number))
    assert seconds.median == median(range(5000 - 1024, 5000))


def test_another_plan_begins_another_median() -> None:
    seconds = StepSeconds()
    for _ in range(2000):
        seconds.add(1.0)
    seconds.begin_plan()
    assert seconds.median == 1.0
    seconds.add(5.0)
    assert seconds.median == 5.0
