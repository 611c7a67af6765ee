from __future__ import annotations

import numpy as np
import pytest

from edgetrain._tvm import relax
from edgetrain.graph.gradients.indexing import INDEXING_RULES
from edgetrain.graph.gradients.rule import Backward
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    normal,
)

o = relax.op

CASES = (
    Case(
        name="where",
        op=o.where,
        inputs={
            "mask": np.array([[True, False, True], [False, False, True]]),
            "a": normal(2, 3),
            "b": normal(2, 3, seed=1),
        },
    ),
    Case(
        name="where_broadcast",
        op=o.where,
        inputs={"mask": np.array([[True], [False]]), "a": normal(3), "b": normal(2, 1)},
    ),
    Case(
        name="gather_elements",
        op=lambda x, i: o.gather_elements(x, i, 1),
        inputs={"x": normal(3, 4), "i": np.array([[0, 0], [3, 1], [2, 2]])},
    ),
    Case(
        name="gather_elements_smaller",
        op=lambda x, i: o.gather_elements(x, i, 0),
        inputs={"x": normal(3, 4), "i": np.array([[2, 0], [2, 1]])},
    ),
    Case(
        name="scatter_elements_rows",
        op=lambda x, i, u: o.scatter_elements(x, i, u, 0),
        inputs={"x": normal(3, 4), "i": np.array([[2, 0], [0, 1]]), "u": normal(2, 2)},
    ),
    Case(
        name="scatter_elements_columns",
        op=lambda x, i, u: o.scatter_elements(x, i, u, 1),
        inputs={"x": normal(3, 4), "i": np.array([[2, -4], [0, 1], [1, 3]]), "u": normal(3, 2)},
    ),
    Case(
        name="scatter_elements_added",
        op=lambda x, i, u: o.scatter_elements(x, i, u, 1, "add"),
        inputs={"x": normal(2, 3), "i": np.array([[1, 1, 0, 1], [0, 1, 2, 2]]), "u": normal(2, 4)},
    ),
    Case(
        name="take_rows",
        op=lambda x, i: o.take(x, i, 0),
        inputs={"x": normal(4, 3), "i": np.array([1, 3, 1])},
    ),
    Case(
        name="take_table",
        op=lambda x, i: o.take(x, i, 0),
        inputs={"x": normal(4, 3), "i": np.array([[1, 3], [1, 0]])},
    ),
    Case(
        name="take_planes",
        op=lambda x, i: o.take(x, i, 0),
        inputs={"x": normal(4, 3, 2), "i": np.array([1, 3, 1])},
    ),
    Case(
        name="take_columns",
        op=lambda x: o.take(x, relax.const(np.array([2, 0, 2])), 1),
        inputs={"x": normal(2, 3, 2)},
    ),
    Case(name="take_one", op=lambda x: o.take(x, relax.const(2, "int64"), 1), inputs={"x": normal(2, 3, 2)}),
    Case(name="take_flat", op=lambda x: o.take(x, relax.const(np.array([5, 0, 5]))), inputs={"x": normal(6)}),
)
OUT_OF_BOUNDS = Case(
    name="out_of_bounds",
    op=lambda x, i: o.take(x, i, 0, mode="clip"),
    inputs={"x": normal(3, 2), "i": np.array([-7, 1, 1000])},
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases((*CASES, OUT_OF_BOUNDS))


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


@pytest.mark.compile
def test_an_index_out_of_bounds_adds_to_the_nearest_row_and_to_no_foreign_memory(compiled: CompiledCases) -> None:
    np.testing.assert_array_equal(compiled.gradients(OUT_OF_BOUNDS)["x"], compiled.cotangents["out_of_bounds"])


@pytest.mark.parametrize(("shape", "is_reshaped"), [((4, 3), False), ((4, 3, 2), True), ((6,), True)], ids=str)
def test_nothing_stands_between_a_tables_gradient_and_its_update(shape: tuple[int, ...], is_reshaped: bool) -> None:
    builder = relax.BlockBuilder()
    table = relax.Var("table", relax.TensorType(shape, "float32"))
    ids = relax.Var("ids", relax.TensorType((5,), "int64"))
    dy = relax.Var("dy", relax.TensorType((5, *shape[1:]), "float32"))
    with builder.function("gradient", [table, ids, dy]):
        step = Backward(
            builder=builder,
            call=o.take(table, ids, 0),
            inputs=[table, ids],
            outputs=[],
            residuals=None,
            output_gradients=[dy],
            wanted=[True, False],
        )
        gradient, _ = INDEXING_RULES["relax.take"].backward(step)
        made_by = builder.lookup_binding(gradient).op.name
        builder.emit_func_output(gradient)
    assert made_by == ("relax.reshape" if is_reshaped else "relax.call_tir")
