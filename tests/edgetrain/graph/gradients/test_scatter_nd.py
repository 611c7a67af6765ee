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
)

o = relax.op
_TUPLES = np.array([[0, 1], [2, -1], [-2, 0]])

CASES = (
    Case(name="elements", op=o.scatter_nd, inputs={"x": normal(3, 4), "i": _TUPLES, "u": normal(3)}),
    Case(name="slices", op=o.scatter_nd, inputs={"x": normal(3, 4, 2), "i": _TUPLES, "u": normal(3, 2)}),
    Case(name="rows", op=o.scatter_nd, inputs={"x": normal(4, 3), "i": np.array([[3], [-4]]), "u": normal(2, 3)}),
    Case(
        name="grid_of_tuples",
        op=o.scatter_nd,
        inputs={"x": normal(3, 4), "i": np.array([[[0, 0], [1, 1]], [[2, 3], [0, 2]]]), "u": normal(2, 2)},
    ),
    Case(
        name="known_places",
        op=lambda x, u: o.scatter_nd(x, relax.const(_TUPLES), u),
        inputs={"x": normal(3, 4), "u": normal(3)},
    ),
    Case(
        name="added_twice",
        op=lambda x, i, u: o.scatter_nd(x, i, u, "add"),
        inputs={"x": normal(3, 4), "i": np.array([[0, 1], [2, 2], [0, 1], [0, -3]]), "u": normal(4)},
    ),
    Case(
        name="only_updates",
        op=o.scatter_nd,
        inputs={"x": normal(3, 4), "i": _TUPLES, "u": normal(3)},
        fixed=frozenset({"x"}),
    ),
)
OUT_OF_BOUNDS = Case(
    name="out_of_bounds",
    op=o.scatter_nd,
    inputs={"x": np.zeros((3, 2)), "i": np.array([[-7], [1000]]), "u": np.array([[1.0, 2.0], [3.0, 4.0]])},
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases((*CASES, OUT_OF_BOUNDS))


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_matches_finite_differences(compiled: CompiledCases, case: Case) -> None:
    assert_gradient(compiled, case)


@pytest.mark.compile
def test_a_place_out_of_bounds_meets_the_nearest_row_and_no_foreign_memory(compiled: CompiledCases) -> None:
    result = compiled.forward(OUT_OF_BOUNDS, OUT_OF_BOUNDS.inputs)
    np.testing.assert_array_equal(result, [[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]])
