from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgetrain._tvm import relax
from edgetrain.graph.gradients.group_norm import GROUP_NORM_RULES
from tests.edgetrain.graph.gradients.finite_difference import (
    Array,
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    normal,
)

nn = relax.op.nn


def _norm(name: str, op: Callable[..., Any], shape: tuple[int, ...], parameters: tuple[int, ...]) -> Case:
    return Case(
        name=name,
        op=op,
        inputs={"x": normal(*shape), "gamma": normal(*parameters, seed=1), "beta": normal(*parameters, seed=2)},
    )


CASES = (
    _norm("layer_norm_last", lambda *i: nn.layer_norm(*i, axes=[-1]), (2, 3, 5), (5,)),
    _norm("layer_norm_features", lambda *i: nn.layer_norm(*i, axes=[-1], epsilon=0.1), (3, 4), (4,)),
    _norm("layer_norm_two_axes", lambda *i: nn.layer_norm(*i, axes=[1, 2]), (2, 3, 4), (3, 4)),
    _norm("group_norm_two", lambda *i: nn.group_norm(*i, 2, 1, [2, 3]), (2, 4, 2, 3), (4,)),
    _norm("group_norm_one", lambda *i: nn.group_norm(*i, 1, 1, [2, 3]), (2, 3, 2, 2), (3,)),
    _norm("group_norm_sequence", lambda *i: nn.group_norm(*i, 2, 1, [2]), (2, 4, 3), (4,)),
    _norm("instance_norm_images", lambda *i: nn.instance_norm(*i, 1, [2, 3]), (2, 3, 3, 3), (3,)),
    _norm("instance_norm_sequence", lambda *i: nn.instance_norm(*i, 1, [2]), (2, 3, 5), (3,)),
    Case(
        name="rms_norm_last",
        op=lambda x, w: nn.rms_norm(x, w, axes=[-1]),
        inputs={"x": normal(2, 3, 4), "w": normal(4)},
    ),
    Case(
        name="rms_norm_epsilon",
        op=lambda x, w: nn.rms_norm(x, w, axes=[-1], epsilon=0.5),
        inputs={"x": normal(3, 4), "w": normal(4)},
    ),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float = 1e-5) -> Array:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + epsilon))


@pytest.mark.compile
def test_layer_norm_is_the_formula(compiled: CompiledCases) -> None:
    case = _case("layer_norm_two_axes")
    expected = _normalised(case.inputs["x"], (1, 2)) * case.inputs["gamma"] + case.inputs["beta"]
    np.testing.assert_allclose(compiled.forward(case, case.inputs), expected, rtol=1e-10)


@pytest.mark.compile
def test_group_norm_is_the_formula(compiled: CompiledCases) -> None:
    case = _case("group_norm_two")
    x, shape = case.inputs["x"], (1, 4, 1, 1)
    normal_x = _normalised(x.reshape(2, 2, 2, 2, 3), (2, 3, 4)).reshape(x.shape)
    expected = normal_x * case.inputs["gamma"].reshape(shape) + case.inputs["beta"].reshape(shape)
    np.testing.assert_allclose(compiled.forward(case, case.inputs), expected, rtol=1e-10)


@pytest.mark.compile
def test_instance_norm_is_the_formula(compiled: CompiledCases) -> None:
    case = _case("instance_norm_sequence")
    shape = (1, 3, 1)
    expected = _normalised(case.inputs["x"], (2,)) * case.inputs["gamma"].reshape(shape)
    expected = expected + case.inputs["beta"].reshape(shape)
    np.testing.assert_allclose(compiled.forward(case, case.inputs), expected, rtol=1e-10)


@pytest.mark.compile
def test_rms_norm_is_the_formula(compiled: CompiledCases) -> None:
    case = _case("rms_norm_epsilon")
    x = case.inputs["x"]
    expected = x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.5) * case.inputs["w"]
    np.testing.assert_allclose(compiled.forward(case, case.inputs), expected, rtol=1e-10)


def _case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_every_rule_has_a_case() -> None:
    assert all(any(case.name.startswith(rule.split(".")[-1]) for case in CASES) for rule in GROUP_NORM_RULES)
