"""Every schedule that rules offer fits and computes the same; what does not fit is refused or refitted."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tvm import te, topi

from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from tests.edgetrain_tuner.machines import eager
from tests.edgetrain_tuner.rules.unscheduled import assert_same_result

pytestmark = pytest.mark.compile

AVX2 = eager(Machine(vector_bits=256, vector_registers=16, cores=2))
NEON = eager(Machine(vector_bits=128, vector_registers=32, cores=4))


def _product(rows: int, columns: int, depth: int) -> Any:
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    return te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])


def _convolution(part: str, channels: int, size: int, filters: int, stride: int, groups: int = 1) -> Any:
    outputs = (size - 1) // stride + 1
    window = Window(strides=(stride, stride), pads=(1, 1), dilation=(1, 1), groups=groups)
    x = te.placeholder((2, channels, size, size), name="x")
    w = te.placeholder((filters, channels // groups, 3, 3), name="w")
    g = te.placeholder((2, filters, outputs, outputs), name="g")
    if part == "forward":
        return te.create_prim_func([x, w, topi.nn.group_conv2d_nchw(x, w, stride, 1, 1, groups)])
    if part == "data":
        return te.create_prim_func([g, w, conv2d_data_gradient(g, w, shape=(2, channels, size, size), window=window)])
    shape = (filters, channels // groups, 3, 3)
    return te.create_prim_func([x, g, conv2d_weight_gradient(x, g, shape=shape, window=window)])


def _softmax(rows: int, columns: int) -> Any:
    x = te.placeholder((rows, columns), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def _sums_of_planes(*shape: int) -> Any:
    x = te.placeholder(shape, name="x")
    images, _, height, width = (te.reduce_axis((0, extent)) for extent in shape)
    total = te.compute((shape[1],), lambda c: te.sum(x[images, c, height, width], [images, height, width]))
    return te.create_prim_func([x, topi.nn.relu(total)])


def _elementwise(*shape: int) -> Any:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, topi.nn.relu(topi.add(x, topi.exp(x)))])


KERNELS: Mapping[str, Callable[[], Any]] = {
    "product that divides": lambda: _product(48, 64, 32),
    "product of primes": lambda: _product(29, 31, 37),
    "convolution": lambda: _convolution("forward", 8, 14, 12, 1),
    "large convolution": lambda: _convolution("forward", 64, 14, 64, 1),
    "large data gradient": lambda: _convolution("data", 67, 15, 61, 1),
    "strided data gradient": lambda: _convolution("data", 5, 13, 7, 2),
    "weight gradient": lambda: _convolution("weight", 6, 11, 8, 1),
    "large weight gradient": lambda: _convolution("weight", 37, 15, 29, 1),
    "depthwise": lambda: _convolution("forward", 6, 14, 6, 1, groups=6),
    "depthwise data gradient": lambda: _convolution("data", 5, 13, 5, 2, groups=5),
    "depthwise weight gradient": lambda: _convolution("weight", 4, 19, 4, 1, groups=4),
    "softmax": lambda: _softmax(37, 130),
    "sums of planes": lambda: _sums_of_planes(8, 5, 31, 29),
    "elementwise": lambda: _elementwise(8, 60, 64),
}


@pytest.mark.parametrize("machine", [AVX2, NEON], ids=["avx2", "neon"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_applying_the_first_proposal_is_scheduling_without_a_search(kernel: str, machine: Machine) -> None:
    function = KERNELS[kernel]()
    proposed = rules.propose(function, machine)
    assert str(rules.apply(function, proposed[0], machine)) == str(rules.schedule(function, machine))
    assert proposed[-1].rule == "generic"


@pytest.mark.parametrize("machine", [AVX2, NEON], ids=["avx2", "neon"])
@pytest.mark.parametrize(
    ("kernel", "rule"),
    [
        ("large convolution", "winograd"),
        ("large data gradient", "winograd"),
        ("large weight gradient", "winograd-weights"),
    ],
)
def test_a_large_convolution_is_proposed_by_both_ways(kernel: str, rule: str, machine: Machine) -> None:
    proposed = [schedule.rule for schedule in rules.propose(KERNELS[kernel](), machine)]
    assert proposed == [rule, "packed-product", "generic"]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_walk_over_neighbours_computes_the_same_all_the_way(kernel: str, seed: int) -> None:
    function, choose = KERNELS[kernel](), random.Random(f"{kernel} {seed}")
    schedule = rules.propose(function, AVX2)[0]
    for _ in range(4):
        found = rules.neighbours(function, schedule, AVX2)
        assert schedule not in [neighbour for _, neighbour in found]
        schedule = choose.choice(found)[1]
    assert_same_result(function, rules.apply(function, schedule, AVX2))


@pytest.mark.parametrize("machine", [AVX2, NEON], ids=["avx2", "neon"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_neighbour_fits_and_differs_by_the_named_parameter(kernel: str, machine: Machine) -> None:
    function = KERNELS[kernel]()
    for proposed in rules.propose(function, machine):
        for name, neighbour in rules.neighbours(function, proposed, machine):
            assert neighbour.parameters[name] != proposed.parameters[name]
            rules.apply(function, neighbour, machine)


@pytest.mark.parametrize("seed", range(12))
def test_a_refitted_schedule_always_fits(seed: int) -> None:
    draw = np.random.default_rng(seed)
    donors, kernels = list(KERNELS), list(KERNELS)
    donor, kernel = KERNELS[donors[draw.integers(len(donors))]](), KERNELS[kernels[draw.integers(len(kernels))]]()
    for schedule in rules.propose(donor, NEON):
        own = [proposed.rule for proposed in rules.propose(kernel, AVX2)]
        if schedule.rule not in own:
            with pytest.raises(ScheduleRefusedError):
                rules.refit(kernel, schedule, AVX2)
            continue
        wild = {name: tuple(int(v * draw.integers(1, 9)) for v in vs) for name, vs in schedule.parameters.items()}
        for wanted in (schedule, Schedule(schedule.rule, wild), Schedule(schedule.rule, {})):
            rules.apply(kernel, rules.refit(kernel, wanted, AVX2), AVX2)


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_fits_is_refitted_to_itself(kernel: str) -> None:
    function = KERNELS[kernel]()
    for proposed in rules.propose(function, AVX2):
        for schedule in (proposed, *(n for _, n in rules.neighbours(function, proposed, AVX2))):
            assert rules.refit(function, schedule, AVX2) == schedule


def test_a_kernel_of_twice_the_size_takes_the_same_tile() -> None:
    tuned = Schedule("packed-product", {"side": (1,), "shape": (8,), "rows": (4,), "depth": (32,), "block": (3,)})
    refitted = rules.refit(_product(96, 128, 64), tuned, AVX2)
    assert refitted.parameters["shape"] == (8,)
    assert refitted.parameters["rows"] == (4,)


@pytest.mark.parametrize(
    "changed",
    [
        {"width": (65,)},
        {"panel": (9,)},
        {"block": (3, 1)},
        {"block": (1, 8)},
        {"depth": (65,)},
        {"kept": (63,)},
        {"kept": (8, 8)},
        {"rows": (15,)},
        {"width": (64,), "block": (2, 7), "depth": (64,), "kept": (64,), "rows": (1,)},
        {"unroll": (2,)},
    ],
    ids=str,
)
def test_what_does_not_fit_winograds_algorithm_is_refused(changed: Mapping[str, tuple[int, ...]]) -> None:
    fitting = {"width": (8,), "panel": (1,), "block": (1, 7), "depth": (8,), "kept": (8,), "rows": (13,)}
    function = KERNELS["large convolution"]()
    rules.apply(function, Schedule("winograd", fitting), AVX2)
    with pytest.raises(ScheduleRefusedError):
        rules.apply(function, Schedule("winograd", {**fitting, **changed}), AVX2)


@pytest.mark.parametrize(
    "changed",
    [
        {"width": (12,)},
        {"width": (48,)},
        {"rows": (7,)},
        {"panel": (4,)},
        {"side": (9,)},
        {"block": (3, 1)},
        {"block": (1, 9)},
        {"unroll": (2,)},
    ],
    ids=str,
)
def test_what_does_not_fit_a_weight_gradient_by_winograds_algorithm_is_refused(
    changed: Mapping[str, tuple[int, ...]],
) -> None:
    fitting = {"width": (16,), "rows": (4,), "panel": (2,), "side": (8,), "block": (2, 8)}
    function = KERNELS["large weight gradient"]()
    rules.apply(function, Schedule("winograd-weights", fitting), AVX2)
    with pytest.raises(ScheduleRefusedError):
        rules.apply(function, Schedule("winograd-weights", {**fitting, **changed}), AVX2)


@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        ("packed-product", {"side": (3,)}),
        ("packed-product", {"rows": (0,)}),
        ("packed-product", {"rows": (14,)}),
        ("packed-product", {"shape": (1000,)}),
        ("packed-product", {"shape": (1, 16)}),
        ("packed-product", {"depth": (33,)}),
        ("packed-product", {"block": (1 << 20,)}),
        ("packed-product", {"unroll": (2,)}),
        ("generic", {"tile": (7, 0)}),
        ("generic", {"parallel": (2, 0)}),
        ("generic", {"spatial": (1,)}),
        ("channelwise", {}),
        ("winograd", {}),
        ("winograd-weights", {}),
        ("no such rule", {}),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(rule: str, changed: Mapping[str, tuple[int, ...]]) -> None:
    function = _product(48, 64, 32)
    proposed = {schedule.rule: schedule.parameters for schedule in rules.propose(function, AVX2)}
    with pytest.raises(ScheduleRefusedError):
        rules.apply(function, Schedule(rule, {**proposed.get(rule, {}), **changed}), AVX2)


def test_registers_decide_what_fits() -> None:
    function = _product(48, 64, 32)
    wide = Schedule("packed-product", {"side": (1,), "shape": (16,), "rows": (9,), "depth": (32,), "block": (1,)})
    few = Machine(vector_bits=128, vector_registers=16, cores=1)
    rules.apply(function, Schedule("packed-product", {**wide.parameters, "rows": (2,)}), few)
    with pytest.raises(ScheduleRefusedError, match="rows"):
        rules.apply(function, wide, few)
    many = Machine(vector_bits=256, vector_registers=32, cores=1)
    rules.apply(function, wide, many)


def test_scheduling_leaves_the_kernel_as_it_was() -> None:
    function = _softmax(37, 130)
    before = str(function)
    for proposed in rules.propose(function, AVX2):
        rules.apply(function, proposed, AVX2)
    assert str(function) == before
