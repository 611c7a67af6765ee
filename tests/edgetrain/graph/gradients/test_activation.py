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
    distinct,
    normal,
    positive,
)

CASES = (
    Case(name="relu", op=relax.op.nn.relu, inputs={"x": distinct(3, 5)}),
    Case(name="relu_of_scalar", op=relax.op.nn.relu, inputs={"x": np.array(0.5)}),
    Case(name="clip", op=lambda x: relax.op.clip(x, -0.7, 0.9), inputs={"x": distinct(3, 5)}),
    Case(name="clip_below_only", op=lambda x: relax.op.clip(x, -0.7, np.inf), inputs={"x": distinct(3, 5)}),
    Case(name="clip_above_only", op=lambda x: relax.op.clip(x, -np.inf, 0.9), inputs={"x": distinct(3, 5)}),
    Case(name="clip_nothing", op=lambda x: relax.op.clip(x, -np.inf, np.inf), inputs={"x": distinct(3, 5)}),
    Case(name="gelu", op=relax.op.nn.gelu, inputs={"x": normal(3, 5)}),
    Case(name="gelu_tanh", op=relax.op.nn.gelu_tanh, inputs={"x": normal(3, 5)}),
    Case(name="silu", op=relax.op.nn.silu, inputs={"x": normal(3, 5)}),
    Case(name="selu", op=relax.op.nn.selu, inputs={"x": distinct(3, 5)}),
    Case(name="leakyrelu", op=lambda x: relax.op.nn.leakyrelu(x, 0.1), inputs={"x": distinct(3, 5)}),
    Case(name="leakyrelu_falling", op=lambda x: relax.op.nn.leakyrelu(x, -0.3), inputs={"x": distinct(3, 5)}),
    Case(name="softplus", op=lambda x: relax.op.nn.softplus(x), inputs={"x": normal(3, 5)}),
    Case(name="softplus_scaled", op=lambda x: relax.op.nn.softplus(x, 3.0, 2.0), inputs={"x": distinct(3, 5)}),
    Case(
        name="prelu",
        op=lambda x, a: relax.op.nn.prelu(x, a, 1),
        inputs={"x": distinct(2, 3, 2, 2), "a": normal(3)},
    ),
    Case(
        name="prelu_last_axis",
        op=lambda x, a: relax.op.nn.prelu(x, a, -1),
        inputs={"x": distinct(2, 3), "a": positive(3)},
    ),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)
