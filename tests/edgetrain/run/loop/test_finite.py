from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from edgetrain.run.engines.engine import Array
from edgetrain.run.loop.finite import finite_tensors, first_not_finite, is_finite
from tests.edgetrain.run.small_run import SAVED, SoftmaxEngine


@pytest.mark.parametrize("place", [0, 8191, 8192, 20_000, 29_999])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_value_that_is_no_number_is_found_wherever_it_is(place: int, value: float, dtype: type) -> None:
    values: Array = np.zeros((300, 100), dtype)
    assert is_finite(values)
    values.reshape(-1)[place] = value
    assert not is_finite(values)


def test_looking_takes_no_memory_to_speak_of() -> None:
    values = np.zeros(4 << 20, np.float32)
    is_finite(values)
    tracemalloc.start()
    is_finite(values)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 32 << 10


def test_what_holds_infinity_or_whole_numbers_from_the_start_is_left_out() -> None:
    engine = SoftmaxEngine()
    engine.tensor("first_moment")[0] = -np.inf
    names = finite_tensors(engine, (*SAVED, "train.labels"))
    assert names == ("weights", "second_moment", "gradient")
    assert first_not_finite(engine, names) is None
    engine.tensor("gradient")[-1, -1] = np.nan
    assert first_not_finite(engine, names) == "gradient"
