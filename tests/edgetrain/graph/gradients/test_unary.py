from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgetrain._tvm import relax
from edgetrain.graph.gradients.pointwise import flat
from edgetrain.graph.gradients.unary import UNARY_RULES
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    distinct,
    generator,
    normal,
    positive,
)


def _unary(op: Callable[[Any], Any], values: Any) -> Case:
    return Case(name=op.__name__, op=op, inputs={"x": values})


INSIDE_ONE = generator("inside one").uniform(-0.9, 0.9, (3, 4))

CASES = (
    _unary(relax.op.abs, distinct(3, 4)),
    _unary(relax.op.acos, INSIDE_ONE),
    _unary(relax.op.acosh, 1.0 + positive(3, 4)),
    _unary(relax.op.asin, INSIDE_ONE),
    _unary(relax.op.asinh, normal(3, 4)),
    _unary(relax.op.atan, normal(3, 4)),
    _unary(relax.op.atanh, INSIDE_ONE),
    _unary(relax.op.cos, normal(3, 4)),
    _unary(relax.op.cosh, normal(3, 4)),
    _unary(relax.op.erf, normal(3, 4)),
    _unary(relax.op.exp, normal(3, 4)),
    _unary(relax.op.log, positive(3, 4)),
    _unary(relax.op.negative, normal(3, 4)),
    _unary(relax.op.rsqrt, positive(3, 4)),
    _unary(relax.op.sigmoid, normal(3, 4)),
    _unary(relax.op.sin, normal(3, 4)),
    _unary(relax.op.sinh, normal(3, 4)),
    _unary(relax.op.sqrt, positive(3, 4)),
    _unary(relax.op.square, normal(3, 4)),
    _unary(relax.op.tan, INSIDE_ONE),
    _unary(relax.op.tanh, normal(3, 4)),
    Case(
        name="astype", op=lambda x: relax.op.astype(relax.op.astype(x, "float64"), "float64"), inputs={"x": normal(3)}
    ),
    # A flat function beside one that is not: its zero must not stop the other's gradient.
    Case(name="floor", op=lambda x: relax.op.add(x, relax.op.floor(x)), inputs={"x": distinct(3, 3)}),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


def test_every_rule_has_a_case() -> None:
    cased = {f"relax.{case.name}" for case in CASES}
    assert {name for name, rule in UNARY_RULES.items() if rule.backward is not flat} <= cased
