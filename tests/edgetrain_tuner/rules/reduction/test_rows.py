"""Rows that are taken through all steps at once: the same results as the unscheduled kernels, and what is declined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx, topi

from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.reduction.rows import Rows
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import ScheduleRefusedError
from tests.edgetrain_tuner.rules.unscheduled import assert_computes_the_same, assert_same_result, written

pytestmark = pytest.mark.compile

MACHINE = Machine(vector_bits=256, vector_registers=16, cores=2)
LONGEST = MACHINE.limits.stack_elements
ALONE = Machine(vector_bits=256, vector_registers=16, cores=1)
SCALAR = Machine(vector_bits=32, vector_registers=16, cores=1)


def _softmax(x: Any) -> Any:
    return topi.nn.softmax(x, -1)


def _log_softmax(x: Any) -> Any:
    return topi.nn.log_softmax(x)


def _normalised(x: Any) -> Any:
    """Mean and deviation of each row, then its elements: two reductions that need each other."""
    columns = np.float32(int(x.shape[-1]))
    total = topi.sum(x, -1)
    centred = te.compute(x.shape, lambda *i: x[i] - total[i[:-1]] / columns)
    squares = topi.sum(topi.multiply(centred, centred), -1)
    return te.compute(x.shape, lambda *i: centred[i] / te.sqrt(squares[i[:-1]] / columns + np.float32(1e-5)))


def _softmax_twice(x: Any) -> Any:
    """Two rows are kept: the exponentials of both."""
    return topi.nn.softmax(topi.nn.softmax(x, -1), -1)


KERNELS: Mapping[str, Callable[[Any], Any]] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "normalised": _normalised,
    "softmax twice": _softmax_twice,
}
SHAPES = [(4, 64), (7, 61), (5, 3), (1, 128), (300, 128), (2, 3, 5, 40)]


def _function(compute: Callable[[Any], Any], shape: tuple[int, ...]) -> Any:
    x = te.placeholder(shape, "float32", name="x")
    return te.create_prim_func([x, compute(x)])


def _kernel(function: Any) -> Kernel:
    return Kernel(function=function, contraction=find(function))


@pytest.mark.parametrize(
    ("name", "shape"), [(n, s) for n in KERNELS for s in SHAPES if n != "log_softmax" or len(s) == 2], ids=str
)
def test_every_row_is_what_the_unscheduled_kernel_computes(name: str, shape: tuple[int, ...]) -> None:
    assert_computes_the_same(_function(KERNELS[name], shape), Rows(), MACHINE)


@pytest.mark.parametrize("parallel", [0, 1])
def test_threads_change_no_bit(parallel: int) -> None:
    function = _function(_softmax, (300, 128))
    assert_same_result(function, Rows().write(_kernel(function), MACHINE, {"parallel": (parallel,)}))


def test_threads_share_rows_where_that_pays() -> None:
    assert Rows().propose(_kernel(_function(_softmax, (300, 128))), MACHINE) == {"parallel": (1,)}
    assert Rows().propose(_kernel(_function(_softmax, (3, 128))), MACHINE) == {"parallel": (0,)}
    assert Rows().propose(_kernel(_function(_softmax, (300, 128))), ALONE) == {"parallel": (0,)}


def test_an_exponential_is_computed_once() -> None:
    """The row is kept: the generic rule computes it for the sum and for the quotient."""
    function = _function(_softmax, (64, 128))
    assert str(written(function, Rows(), MACHINE)).count("T.exp(") == 1
    assert rules.scheduled(function, MACHINE)[0].rule == "rows"


def test_a_row_that_no_stack_holds_is_left_to_others() -> None:
    assert written(_function(_softmax, (4, LONGEST)), Rows(), MACHINE) is not None
    assert written(_function(_softmax, (4, LONGEST + 1)), Rows(), MACHINE) is None
    # Nothing of it is kept but two numbers.
    assert written(_function(_log_softmax, (4, LONGEST + 1)), Rows(), MACHINE) is not None


def _maximum_too(x: Any) -> list[Any]:
    largest = topi.max(x, -1, keepdims=True)
    return [x, largest, topi.subtract(x, largest)]


def _of_the_row_before(x: Any) -> list[Any]:
    total = topi.sum(x, -1)
    rows = int(x.shape[0])
    return [x, te.compute(x.shape, lambda i, j: x[i, j] - total[tirx.indexmod(i + 1, rows)])]


def _sum_of_columns(x: Any) -> list[Any]:
    return [x, topi.subtract(x, topi.sum(x, 0, keepdims=True))]


def _only_a_sum(x: Any) -> list[Any]:
    return [x, topi.sum(x, -1)]


def _only_elements(x: Any) -> list[Any]:
    return [x, topi.exp(x)]


@pytest.mark.parametrize(
    "arguments",
    [_maximum_too, _of_the_row_before, _sum_of_columns, _only_a_sum, _only_elements],
    ids=lambda f: f.__name__,
)
def test_what_does_not_end_in_the_elements_of_its_own_rows_is_declined(arguments: Callable[[Any], list[Any]]) -> None:
    x = te.placeholder((8, 16), "float32", name="x")
    function = te.create_prim_func(arguments(x))
    assert written(function, Rows(), MACHINE) is None
    with pytest.raises(ScheduleRefusedError, match="rows"):
        Rows().check(_kernel(function), MACHINE, {"parallel": (0,)})


def test_a_row_of_one_element_is_left_to_others() -> None:
    assert written(_function(_softmax, (8, 1)), Rows(), MACHINE) is None


def test_a_target_without_vectors_is_left_to_others() -> None:
    assert written(_function(_softmax, (8, 64)), Rows(), SCALAR) is None


def test_rows_are_not_shared_where_there_is_one_core() -> None:
    with pytest.raises(ScheduleRefusedError, match="cores"):
        Rows().check(_kernel(_function(_softmax, (8, 64))), ALONE, {"parallel": (1,)})
