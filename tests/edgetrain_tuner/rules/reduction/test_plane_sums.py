"""Sums of planes, shared out by images: the same results as the unscheduled kernels, and what is declined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te

from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.reduction.plane_sums import PlaneSums
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from tests.edgetrain_tuner.machines import eager
from tests.edgetrain_tuner.rules.unscheduled import assert_computes_the_same, assert_same_result, written

pytestmark = pytest.mark.compile

CORES = Machine(vector_bits=256, vector_registers=16, cores=2)
ALONE, TWO, FOUR = (eager(replace(CORES, cores=cores)) for cores in (1, 2, 4))


def _over(shape: tuple[int, ...], term: Callable[..., Any]) -> Any:
    """The sum of a term over images and planes."""
    images, _, *plane = (te.reduce_axis((0, extent)) for extent in shape)
    return te.compute((shape[1],), lambda c: te.sum(term(images, c, *plane), [images, *plane]), name="total")


def _mean(shape: tuple[int, ...]) -> Any:
    x = te.placeholder(shape, name="x")
    total = _over(shape, lambda *at: x[at])
    count = np.float32(np.prod(shape) // shape[1])
    return te.create_prim_func([x, te.compute((shape[1],), lambda c: total[c] / count)])


def _variance(shape: tuple[int, ...]) -> Any:
    x, mean = te.placeholder(shape, name="x"), te.placeholder((shape[1],), name="mean")
    return te.create_prim_func([x, mean, _over(shape, lambda *at: (x[at] - mean[at[1]]) * (x[at] - mean[at[1]]))])


def _scale_gradient(shape: tuple[int, ...]) -> Any:
    dy, x, mean = te.placeholder(shape, name="dy"), te.placeholder(shape, name="x"), te.placeholder((shape[1],))
    return te.create_prim_func([dy, x, mean, _over(shape, lambda *at: dy[at] * (x[at] - mean[at[1]]))])


KERNELS: Mapping[str, Callable[[tuple[int, ...]], Any]] = {
    "mean": _mean,
    "variance": _variance,
    "scale gradient": _scale_gradient,
}


def _kernel(function: Any) -> Kernel:
    return Kernel(function=function, contraction=find(function))


@pytest.mark.parametrize("machine", [TWO, FOUR], ids=["two cores", "four cores"])
@pytest.mark.parametrize("shape", [(4, 16, 8, 8), (8, 3, 7, 5), (16, 1, 61), (4, 5, 1, 13), (7, 2, 3, 3)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_every_sum_is_what_the_unscheduled_kernel_computes(name: str, shape: tuple[int, ...], machine: Machine) -> None:
    assert_computes_the_same(KERNELS[name](shape), PlaneSums(), machine)


def test_it_comes_first_for_the_statistics_of_a_norm() -> None:
    schedule, _ = rules.scheduled(_variance((4, 16, 32, 32)), TWO)
    assert schedule == Schedule("plane-sums", {"tasks": (2,)})


def test_images_that_make_no_fair_shares_are_left_to_others() -> None:
    assert written(_mean((3, 16, 8, 8)), PlaneSums(), TWO) is None  # two and one
    assert written(_mean((1, 16, 8, 8)), PlaneSums(), TWO) is None
    assert written(_mean((5, 16, 8, 8)), PlaneSums(), TWO) is not None  # three and two


def test_one_core_small_sums_and_other_kernels_are_left_to_others() -> None:
    assert written(_mean((4, 16, 8, 8)), PlaneSums(), ALONE) is None
    assert written(_mean((4, 2, 8, 8)), PlaneSums(), CORES) is None
    x = te.placeholder((4, 16, 8, 8), name="x")
    n, h, w = (te.reduce_axis((0, extent)) for extent in (4, 8, 8))
    c = te.reduce_axis((0, 16))
    others = {
        "a maximum": te.compute((16,), lambda c: te.max(x[n, c, h, w], [n, h, w])),
        "images that stay apart": te.compute((4, 16), lambda n, c: te.sum(x[n, c, h, w], [h, w])),
        "channels that are summed up": te.compute((8, 8), lambda h, w: te.sum(x[n, c, h, w], [n, c])),
        "planes read backwards": te.compute((16,), lambda c: te.sum(x[n, c, 7 - h, w], [n, h, w])),
    }
    for name, result in others.items():
        assert written(te.create_prim_func([x, result]), PlaneSums(), TWO) is None, name


def test_more_tasks_than_cores_are_refused() -> None:
    kernel = _kernel(_mean((8, 16, 8, 8)))
    for count in (1, 2, 4):
        assert_same_result(kernel.function, PlaneSums().write(kernel, FOUR, {"tasks": (count,)}))
    for tasks in ((4,), (0,), (2, 2)):
        with pytest.raises(ScheduleRefusedError):
            PlaneSums().check(kernel, TWO, {"tasks": tasks})
