"""Ops whose gradient is TVM's own: held here, so that a new TVM cannot change it unseen."""

from __future__ import annotations

import pytest

from edgetrain._tvm import relax
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    normal,
)

CASES = (
    Case(name="softmax", op=lambda x: relax.op.nn.softmax(x, -1), inputs={"x": normal(2, 5)}),
    Case(name="softmax_channels", op=lambda x: relax.op.nn.softmax(x, 1), inputs={"x": normal(2, 3, 2, 2)}),
    Case(name="log_softmax", op=lambda x: relax.op.nn.log_softmax(x, -1), inputs={"x": normal(2, 5)}),
    Case(name="log_softmax_rows", op=lambda x: relax.op.nn.log_softmax(x, 0), inputs={"x": normal(3, 4)}),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)
