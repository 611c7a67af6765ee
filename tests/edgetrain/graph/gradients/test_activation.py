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
)

CASES = (
    Case(name="relu", op=relax.op.nn.relu, inputs={"x": distinct(3, 5)}),
    Case(name="clip", op=lambda x: relax.op.clip(x, -0.7, 0.9), inputs={"x": distinct(3, 5)}),
    Case(name="clip_below_only", op=lambda x: relax.op.clip(x, -0.7, np.inf), inputs={"x": distinct(3, 5)}),
    Case(name="clip_above_only", op=lambda x: relax.op.clip(x, -np.inf, 0.9), inputs={"x": distinct(3, 5)}),
    Case(name="clip_nothing", op=lambda x: relax.op.clip(x, -np.inf, np.inf), inputs={"x": distinct(3, 5)}),
    Case(name="relu_of_scalar", op=relax.op.nn.relu, inputs={"x": np.array(0.5)}),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)

