from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgetrain._tvm import relax
from edgetrain.graph.gradients.reduction import REDUCTION_RULES
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    distinct,
)

OPS: tuple[Callable[..., Any], ...] = (
    relax.op.sum,
    relax.op.mean,
    relax.op.max,
    relax.op.min,
    relax.op.prod,
    relax.op.variance,
    relax.op.std,
)
REDUCTIONS: dict[str, dict[str, Any]] = {
    "last": {"axis": -1},
    "images": {"axis": [0, 2], "keepdims": True},
    "first": {"axis": [0]},
    "all": {},
    "all_kept": {"keepdims": True},
}


def _reduce(op: Callable[..., Any], name: str) -> Case:
    return Case(name=f"{op.__name__}_{name}", op=lambda x: op(x, **REDUCTIONS[name]), inputs={"x": distinct(2, 3, 4)})


CASES = (
    *(_reduce(op, name) for op in OPS for name in REDUCTIONS),
    Case(name="cumsum", op=lambda x: relax.op.cumsum(x, 1), inputs={"x": distinct(2, 4)}),
    Case(name="cumsum_rows", op=lambda x: relax.op.cumsum(x, 0), inputs={"x": distinct(3, 2)}),
    Case(name="cumsum_exclusive", op=lambda x: relax.op.cumsum(x, -1, exclusive=True), inputs={"x": distinct(2, 4)}),
    Case(name="cumsum_flat", op=relax.op.cumsum, inputs={"x": distinct(2, 3)}),
)
TIES = Case(name="ties", op=lambda x: relax.op.max(x, 1), inputs={"x": np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])})
ZERO = Case(name="zero", op=lambda x: relax.op.prod(x, 0), inputs={"x": np.array([0.0, 2.0, 3.0])})


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases((*CASES, TIES, ZERO))


@pytest.mark.compile
@pytest.mark.parametrize("case", [*CASES, ZERO], ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


@pytest.mark.compile
def test_elements_that_tie_for_the_maximum_share_the_gradient(compiled: CompiledCases) -> None:
    first, second = compiled.cotangents["ties"]
    expected = [[0.0, first / 2, first / 2], [second / 3, second / 3, second / 3]]
    np.testing.assert_allclose(compiled.gradients(TIES)["x"], expected, rtol=1e-14)


def test_every_rule_has_a_case() -> None:
    assert {f"relax.{op.__name__}" for op in OPS} | {"relax.cumsum"} == set(REDUCTION_RULES)
