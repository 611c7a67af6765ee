from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

SHAPES = {
    "same": ((2, 3), (2, 3)),
    "bias": ((2, 3, 4), (3, 1)),
    "outer": ((3, 1), (1, 4)),
    "left_smaller": ((4,), (2, 3, 4)),
    "scalar": ((2, 3), ()),
    "ones": ((1, 1), (2, 3)),
}
OPS: tuple[Callable[..., Any], ...] = (
    relax.op.add,
    relax.op.subtract,
    relax.op.multiply,
    relax.op.divide,
    relax.op.maximum,
    relax.op.minimum,
)


def _broadcast(op: Callable[..., Any], shape_name: str) -> Case:
    left, right = SHAPES[shape_name]
    return Case(
        name=f"{op.__name__}_{shape_name}",
        op=op,
        inputs={"a": distinct(*left), "b": distinct(*right, low=0.31, high=1.7) if right else np.array(0.77)},
    )


CASES = (
    *(_broadcast(op, shapes) for op in OPS for shapes in SHAPES),
    Case(name="power", op=relax.op.power, inputs={"a": positive(2, 3), "b": normal(2, 3)}),
    Case(name="power_broadcast", op=relax.op.power, inputs={"a": positive(2, 3), "b": normal(3)}),
    Case(
        name="power_constant",
        op=lambda a: relax.op.power(a, relax.const(3.0, "float64")),
        inputs={"a": distinct(2, 3)},
    ),
    Case(name="with_itself", op=lambda a: relax.op.multiply(a, a), inputs={"a": normal(3)}),
    Case(
        name="constant_operand",
        op=lambda a: relax.op.multiply(a, relax.const(np.array([[2.0], [3.0]]), "float64")),
        inputs={"a": normal(2, 3)},
    ),
)
TIES = Case(name="ties", op=relax.op.maximum, inputs={"a": np.array([1.0, 2.0, 0.0]), "b": np.array([1.0, 0.0, 2.0])})


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases((*CASES, TIES))


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


@pytest.mark.compile
def test_equal_operands_of_a_maximum_share_the_gradient(compiled: CompiledCases) -> None:
    cotangent = compiled.cotangents["ties"]
    gradients = compiled.gradients(TIES)
    np.testing.assert_array_equal(gradients["a"], cotangent * [0.5, 1.0, 0.0])
    np.testing.assert_array_equal(gradients["b"], cotangent * [0.5, 0.0, 1.0])
