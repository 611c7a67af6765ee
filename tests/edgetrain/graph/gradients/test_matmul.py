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


def _matmul(name: str, left: tuple[int, ...], right: tuple[int, ...], *, transpose: list[int] | None = None) -> Case:
    """`transpose` permutes the stored right operand first, as an exported linear layer does."""
    return Case(
        name=name,
        op=lambda a, b: relax.op.matmul(a, relax.op.permute_dims(b, transpose) if transpose else b),
        inputs={"a": normal(*left), "b": normal(*right, seed=1)},
    )


CASES = (
    _matmul("two_matrices", (3, 4), (4, 5)),
    _matmul("row_and_column", (1, 4), (4, 1)),
    _matmul("batched", (2, 3, 4), (2, 4, 5)),
    _matmul("two_batch_axes", (2, 2, 3, 4), (2, 2, 4, 2)),
    _matmul("shared_right", (2, 3, 4), (4, 5)),
    _matmul("shared_left", (3, 4), (2, 4, 5)),
    _matmul("broadcast_left_batch", (1, 3, 4), (2, 4, 5)),
    _matmul("broadcast_right_batch", (2, 3, 4), (1, 4, 5)),
    _matmul("broadcast_both_batches", (2, 1, 3, 4), (1, 3, 4, 2)),
    _matmul("vector_left", (4,), (4, 5)),
    _matmul("vector_right", (3, 4), (4,)),
    _matmul("vector_left_batched", (4,), (2, 4, 5)),
    _matmul("vector_right_batched", (2, 3, 4), (4,)),
    _matmul("two_vectors", (4,), (4,)),
    _matmul("transposed_weight", (3, 4), (5, 4), transpose=[1, 0]),
    _matmul("transposed_shared_weight", (2, 3, 4), (5, 4), transpose=[1, 0]),
    _matmul("transposed_keys", (2, 2, 3, 4), (2, 2, 5, 4), transpose=[0, 1, 3, 2]),
    _matmul("transposed_broadcast", (2, 3, 4), (1, 5, 4), transpose=[0, 2, 1]),
    _matmul("transposed_but_not_last_two", (2, 3, 4), (4, 2, 5), transpose=[1, 0, 2]),
    _matmul("vector_left_transposed_right", (4,), (5, 4), transpose=[1, 0]),
    Case(
        name="transposed_weight_used_twice",
        op=lambda a, b: relax.op.matmul(relax.op.matmul(a, b), relax.op.permute_dims(b, [1, 0])),
        inputs={"a": normal(2, 4), "b": normal(4, 3)},
    ),
    Case(
        name="default_permutation",
        op=lambda a, b: relax.op.matmul(a, relax.op.permute_dims(b)),
        inputs={"a": normal(3, 4), "b": normal(5, 4)},
    ),
    Case(name="square_of_itself", op=lambda a: relax.op.matmul(a, a), inputs={"a": normal(3, 3)}),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES, with_stock=True)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_reading_a_transposed_operand_in_place_changes_no_result(case: Case, compiled: CompiledCases) -> None:
    np.testing.assert_allclose(compiled.forward(case, case.inputs), compiled.stock_forward(case), rtol=1e-12)
