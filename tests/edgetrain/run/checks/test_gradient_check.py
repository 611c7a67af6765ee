"""The comparison with finite differences, compared: it finds gradients that were made wrong, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.graph.ir import LABELS
from edgetrain.run.checks.gradient_check import GradientError, Verdict, gradient_errors
from edgetrain.run.engines.engine import Array
from edgetrain.run.engines.synthetic import fill_synthetic
from tests.edgetrain.run import clipped_network as clipped
from tests.edgetrain.run.clipped_network import ON_A_KINK, clipped_network
from tests.edgetrain.run.numpy_engine import NumpyEngine
from tests.edgetrain.run.softmax_regression import GRAPH, TRAINED, softmax_regression


def verdicts(engine: NumpyEngine, seed: int = 0) -> dict[str, Verdict]:
    fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=seed)
    return {error.tensor: error.verdict for error in gradient_errors(engine, TRAINED, seed=seed)}


def errors_among_kinks(engine: NumpyEngine, seed: int) -> dict[str, GradientError]:
    fill_synthetic(engine, clipped.GRAPH, loss="mse", seed=seed)
    names = (*clipped.TRAINED, ON_A_KINK)
    return {error.tensor: error for error in gradient_errors(engine, names, seed=seed)}


@pytest.mark.parametrize("seed", range(5))
def test_right_gradients_pass(seed: int) -> None:
    assert set(verdicts(softmax_regression(), seed).values()) == {Verdict.RIGHT}


def _one_column_lost(gradient: Array) -> Array:
    lost = gradient.copy()
    lost[..., np.abs(gradient).reshape(-1, gradient.shape[-1]).sum(axis=0).argmax()] = 0
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
    found = verdicts(softmax_regression({tensor: FAULTS[fault]}), seed)
    assert found.pop(tensor) is Verdict.WRONG
    assert set(found.values()) == {Verdict.RIGHT}


@pytest.mark.parametrize("seed", range(8))
def test_right_gradients_among_kinks_are_not_called_wrong(seed: int) -> None:
    found = errors_among_kinks(clipped_network(), seed)
    assert found.pop(ON_A_KINK).verdict is Verdict.UNCERTAIN
    assert {error.verdict for error in found.values()} == {Verdict.RIGHT}


def _one_term_missing(gradient: Array) -> Array:
    """As if the last part of the batch, or one of two paths, had been left out of half of the rows."""
    missing = gradient.copy()
    missing[::2] *= 0.3
    return missing


LARGE_FAULTS = {
    "three tenths lost": lambda g: 0.7 * g,
    "of the wrong sign": lambda g: -g,
    "zero": lambda g: 0 * g,
    "one term missing": _one_term_missing,
    "rows in another order": lambda g: g[::-1],
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tensor", clipped.TRAINED)
@pytest.mark.parametrize("fault", LARGE_FAULTS)
def test_kinks_do_not_excuse_a_wrong_gradient(fault: str, tensor: str, seed: int) -> None:
    found = errors_among_kinks(clipped_network({tensor: LARGE_FAULTS[fault]}), seed)
    assert found.pop(tensor).verdict is Verdict.WRONG
    assert Verdict.WRONG not in {error.verdict for error in found.values()}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_uncertain_says_how_far_the_differences_are_apart(seed: int) -> None:
    on_a_kink = errors_among_kinks(clipped_network({ON_A_KINK: lambda g: g + 1}), seed)[ON_A_KINK]
    assert on_a_kink.verdict is Verdict.UNCERTAIN
    assert on_a_kink.spread > on_a_kink.relative > 0


def test_a_gradient_that_the_loss_cannot_show_is_unseen() -> None:
    engine = softmax_regression()
    fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=0)
    engine.tensor("x")[...] *= 1e-6  # and with it the gradient
    found = {error.tensor: error.verdict for error in gradient_errors(engine, ("w",), seed=0)}
    assert found == {"w": Verdict.UNSEEN}


def test_a_loss_that_rounds_to_nothing_proves_no_gradient_wrong() -> None:
    """−log of a share that is 1 in float32 is 0 on all sides, while the gradient is that of the share that is left."""
    engine = softmax_regression()
    fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=0)
    engine.tensor("w")[...] = 0
    engine.tensor("b")[...] = (20, 0, 0, 0, 0)
    engine.tensor(LABELS)[...] = 0
    assert {error.verdict for error in gradient_errors(engine, TRAINED, seed=0)} == {Verdict.UNSEEN}


def test_a_loss_of_nothing_shows_nothing() -> None:
    engine = NumpyEngine(GRAPH, lambda arrays: (0.0, {"w": 0 * arrays["w"]}), {"w": np.ones((12, 5))})
    (error,) = gradient_errors(engine, ("w",), seed=0, size_of=abs)
    assert error.verdict is Verdict.UNSEEN


def test_probing_leaves_the_parameters_as_they_were() -> None:
    engine = softmax_regression()
    before = bytes(engine.saved)
    assert verdicts(engine)
    assert bytes(engine.saved) == before
    assert engine.calls > 1


@pytest.mark.parametrize("seed", range(5))
def test_right_gradients_of_two_tensors_take_fewer_steps_than_each_alone(seed: int) -> None:
    together, alone = softmax_regression(), [softmax_regression() for _ in TRAINED]
    verdicts(together, seed)
    for engine, name in zip(alone, TRAINED, strict=True):
        fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=seed)
        assert list(gradient_errors(engine, [name], seed=seed))
    assert together.calls < sum(engine.calls for engine in alone)
