"""The comparison with finite differences, compared: it finds gradients that were made wrong, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.run.check import fill_synthetic
from edgetrain.run.engine import Array
from edgetrain.run.gradient_check import gradient_errors
from tests.edgetrain.run.softmax_regression import CLASSES, GRAPH, TRAINED, SoftmaxRegression


def excesses(engine: SoftmaxRegression, seed: int = 0) -> dict[str, float]:
    fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=seed)
    return {error.tensor: error.excess for error in gradient_errors(engine, TRAINED, seed=seed)}


@pytest.mark.parametrize("seed", range(5))
def test_right_gradients_pass(seed: int) -> None:
    assert all(excess <= 1 for excess in excesses(SoftmaxRegression(), seed).values())


def _one_column_lost(gradient: Array) -> Array:
    lost = gradient.copy()
    lost[..., np.abs(gradient).reshape(-1, CLASSES).sum(axis=0).argmax()] = 0
    return lost


FAULTS = {
    "a tenth too large": lambda g: 1.1 * g,
    "a tenth too small": lambda g: 0.9 * g,
    "of the wrong sign": lambda g: -g,
    "zero": lambda g: 0 * g,
    "one column lost": _one_column_lost,
    "rows in another order": lambda g: g[::-1],
    "not a number": lambda g: g * np.nan,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tensor", TRAINED)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_gradient_is_found_and_blamed_on_its_tensor(fault: str, tensor: str, seed: int) -> None:
    found = excesses(SoftmaxRegression({tensor: FAULTS[fault]}), seed)
    assert not found.pop(tensor) <= 1
    assert all(excess <= 1 for excess in found.values())


def test_probing_leaves_the_parameters_as_they_were() -> None:
    engine = SoftmaxRegression()
    before = bytes(engine.saved)
    assert excesses(engine)
    assert bytes(engine.saved) == before
    assert engine.calls > 1


@pytest.mark.parametrize("seed", range(5))
def test_right_gradients_of_two_tensors_take_fewer_steps_than_each_alone(seed: int) -> None:
    together, alone = SoftmaxRegression(), [SoftmaxRegression() for _ in TRAINED]
    excesses(together, seed)
    for engine, name in zip(alone, TRAINED, strict=True):
        fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=seed)
        assert list(gradient_errors(engine, [name], seed=seed))
    assert together.calls < sum(engine.calls for engine in alone)
