"""A candidate is measured only after it computed what the reference does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, topi

from edgetrain_tuner import rules
from edgetrain_tuner.measure.arguments import Parameter, draw, largest_error
from edgetrain_tuner.measure.bench import Aliases, Bench, Subject
from edgetrain_tuner.schedule import Schedule
from tests.edgetrain_tuner.measure.stand_in import AVX2, build, misbehaving

pytestmark = pytest.mark.compile


def product() -> Any:
    a, b = te.placeholder((96, 96), name="a"), te.placeholder((96, 64), name="b")
    return te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])


def tile_of(rows: int) -> Schedule:
    return Schedule("packed-product", {"side": (1,), "shape": (16,), "rows": (rows,), "depth": (96,), "block": (4,)})


@pytest.fixture(scope="module")
def bench() -> Bench:
    bench = Bench(misbehaving, AVX2)
    opened = bench.open(0, Subject(function=product(), outputs=1))
    assert opened.seconds > 0
    assert opened.against == "unscheduled"
    return bench


def test_a_good_candidate_is_measured_beside_the_default(bench: Bench) -> None:
    outcome = bench.trial(0, tile_of(6))
    assert outcome.status == "measured", outcome
    assert outcome.compile_s > 0
    assert outcome.seconds > 0
    assert outcome.default_seconds > 0
    assert outcome.speedup == outcome.default_seconds / outcome.seconds
    assert outcome.largest_error < 1e-5


def test_a_candidate_with_one_wrong_number_is_refused(bench: Bench) -> None:
    outcome = bench.trial(0, tile_of(2))
    assert outcome.status == "wrong"
    assert outcome.speedup == 0


def test_a_candidate_that_does_not_compile_has_failed(bench: Bench) -> None:
    outcome = bench.trial(0, tile_of(5))
    assert (outcome.status, outcome.message) == ("failed", "no such instruction")


def test_a_candidate_that_does_not_fit_is_not_compiled(bench: Bench) -> None:
    compiled: list[bool] = []
    outcome = bench.trial(0, tile_of(40), compiled=lambda: compiled.append(True))
    assert outcome.status == "refused"
    assert not compiled


def test_a_wrong_default_is_noticed_when_the_kernel_is_opened() -> None:
    def wrong(function: Any, aliases: Aliases) -> Any:
        return misbehaving(rules.apply(product(), tile_of(2), AVX2) if "panel" in str(function) else function, aliases)

    with pytest.raises(RuntimeError, match="differs from the unscheduled"):
        Bench(wrong, AVX2).open(0, Subject(function=product(), outputs=1))


def test_what_is_updated_in_place_is_one_array() -> None:
    w, g = te.placeholder((64,), name="w"), te.placeholder((64,), name="g")
    function = te.create_prim_func([w, g, te.compute((64,), lambda i: w[i] - g[i])])
    seen: list[Any] = []

    class Recording:
        def bound(self, arrays: Any) -> Any:
            seen.append((arrays[0] is arrays[2], arrays[2].copy()))
            return build(function, ()).bound(arrays)

        def close(self) -> None:
            """Nothing to do."""

    Bench(lambda _function, _aliases: Recording(), AVX2).open(
        0, Subject(function=function, outputs=1, aliases=((0, 2),))
    )
    assert all(is_one for is_one, _ in seen)
    assert np.isfinite(seen[0][1]).all()


def test_numbers_are_the_same_every_time() -> None:
    parameters = (Parameter(shape=(3, 5), dtype="float32"), Parameter(shape=(7,), dtype="int64"))
    one, other = draw(parameters, is_positive=False), draw(parameters, is_positive=False)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert set(np.unique(one[1])) <= {0, 1}
    assert (one[0] < 0).any()
    assert (draw(parameters, is_positive=True)[0] > 0).all()
    assert all(array.ctypes.data % 64 == 0 for array in one)


@pytest.mark.parametrize(
    ("result", "error"),
    [([1.0, 2.0], 0.0), ([1.0, 2.5], 0.25), ([np.nan, 2.0], np.inf), ([1.0, np.inf], np.inf)],
    ids=str,
)
def test_errors_are_a_share_of_the_largest_element(result: list[float], error: float) -> None:
    assert largest_error([np.array(result)], [np.array([1.0, 2.0])]) == error


def test_whole_numbers_must_be_equal() -> None:
    assert largest_error([np.array([1, 2])], [np.array([1, 2])]) == 0
    assert largest_error([np.array([1, 3])], [np.array([1, 2])]) == np.inf
