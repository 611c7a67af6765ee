from __future__ import annotations

import numpy as np
import pytest

from edgetrain._tvm import relax
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    normal,
    positive,
)

STATISTICS = frozenset({"mean", "variance"})


def _batch_norm(name: str, shape: tuple[int, ...], *, training: bool) -> Case:
    channels = shape[1]
    return Case(
        name=name,
        op=lambda *inputs: relax.TupleGetItem(relax.op.nn.batch_norm(*inputs, axis=1, epsilon=1e-3, training=False), 0),
        inputs={
            "x": normal(*shape),
            "gamma": normal(channels, seed=1),
            "beta": normal(channels, seed=2),
            "mean": normal(channels, seed=3),
            "variance": positive(channels, seed=4),
        },
        fixed=STATISTICS,
        training_batchnorm=training,
    )


CASES = (
    _batch_norm("train_images", (3, 2, 3, 4), training=True),
    _batch_norm("train_features", (5, 3), training=True),
    _batch_norm("train_sequences", (3, 2, 4), training=True),
    _batch_norm("train_one_image", (1, 2, 3, 3), training=True),
    _batch_norm("frozen_images", (2, 3, 3, 2), training=False),
    _batch_norm("frozen_features", (3, 4), training=False),
    _batch_norm("train_single_value", (1, 3), training=True),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES, with_stock=True)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


@pytest.mark.compile
def test_frozen_batch_norm_computes_what_inference_does(compiled: CompiledCases) -> None:
    for case in CASES:
        if not case.training_batchnorm:
            np.testing.assert_allclose(compiled.forward(case, case.inputs), compiled.stock_forward(case), rtol=1e-12)


@pytest.mark.compile
def test_training_batch_norm_normalises_with_the_batch_s_own_statistics(compiled: CompiledCases) -> None:
    case = CASES[0]
    x, gamma, beta = (case.inputs[n] for n in ("x", "gamma", "beta"))
    axes = (0, 2, 3)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    shaped = (1, -1, 1, 1)
    expected = (x - mean) / np.sqrt(variance + 1e-3) * gamma.reshape(shaped) + beta.reshape(shaped)
    np.testing.assert_allclose(compiled.forward(case, case.inputs), expected, rtol=1e-10)


@pytest.mark.compile
def test_a_single_value_is_normalised_with_the_stored_statistics(compiled: CompiledCases) -> None:
    """Its own mean is itself: normalising with it would erase the input."""
    case = next(c for c in CASES if c.name == "train_single_value")
    np.testing.assert_allclose(compiled.forward(case, case.inputs), compiled.stock_forward(case), rtol=1e-12)
