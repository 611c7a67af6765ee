from __future__ import annotations

import numpy as np
import pytest

from edgetrain.graph.adapters import Adapter, Beside, RowDelta, beside_from_json, merge_adapters

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("transposed", [False, True])
def test_merging_adds_the_scaled_product_in_the_weights_layout(transposed: bool) -> None:
    adapter = Adapter(weight="w", rank=2, alpha=6.0, transposed=transposed)
    down, up = RNG.standard_normal((2, 5)).astype(np.float32), RNG.standard_normal((4, 2)).astype(np.float32)
    weight = RNG.standard_normal((5, 4) if transposed else (4, 5)).astype(np.float32)
    x = RNG.standard_normal((3, 5))
    apart = x @ (weight if transposed else weight.T) + 3.0 * (x @ down.T) @ up.T
    together = adapter.merged(weight, {adapter.down: down, adapter.up: up})
    assert together.dtype == np.float32
    np.testing.assert_allclose(x @ (together if transposed else together.T), apart, rtol=1e-5, atol=1e-6)


def test_merging_leaves_the_model_with_its_own_parameters_only() -> None:
    adapter = Adapter(weight="w", rank=1, alpha=1.0, transposed=False)
    ones = np.ones((2, 2), np.float32)
    given = {"w": ones, "b": ones[0], adapter.down: ones[:1], adapter.up: ones[:, :1]}
    result = merge_adapters(given, [adapter])
    assert list(result) == ["w", "b"]
    np.testing.assert_array_equal(result["w"](), 2 * ones)
    np.testing.assert_array_equal(given["w"], ones)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_delta_goes_into_its_outputs_and_no_other(axis: int) -> None:
    weight, part = np.ones((4, 4), np.float32), np.full((2, 4) if axis == 0 else (4, 2), 0.5, np.float32)
    delta = RowDelta(weight="w", rows=(0, 2), axis=axis)
    result = merge_adapters({"w": weight, delta.delta: part}, [delta])
    assert list(result) == ["w"]
    by_output = np.moveaxis(result["w"](), axis, 0)
    np.testing.assert_array_equal(by_output, [[1.5] * 4, [1.0] * 4, [1.5] * 4, [1.0] * 4])
    np.testing.assert_array_equal(weight, np.ones((4, 4)))


@pytest.mark.parametrize(
    "given", [Adapter(weight="w", rank=3, alpha=0.5, transposed=True), RowDelta(weight="w", rows=(0, 3), axis=1)]
)
def test_what_is_beside_a_weight_survives_json(given: Beside) -> None:
    assert beside_from_json(given.to_json()) == given
