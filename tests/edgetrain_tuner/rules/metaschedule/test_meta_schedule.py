"""What MetaSchedule finds is data: applied, moved and refitted like others, and refused where it does not fit."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx, topi
from tvm.ir import Call

from edgetrain_tuner import rules
from edgetrain_tuner.cache.schedules import RuleSchedule, read_schedule
from edgetrain_tuner.machine import Limits, Machine
from edgetrain_tuner.rules.metaschedule.design_space import nearest_tiling, tilings
from edgetrain_tuner.rules.metaschedule.rule import NAME
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from tests.edgetrain_tuner.rules.metaschedule.drawn_schedules import drawn
from tests.edgetrain_tuner.rules.unscheduled import assert_same_result, run

pytestmark = pytest.mark.compile

AVX2 = Machine(vector_bits=256, vector_registers=16, cores=2)
ONE_CORE = Machine(vector_bits=256, vector_registers=16, cores=1)


def _product(rows: int, columns: int, depth: int) -> Any:
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    return te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])


def _convolution(channels: int, size: int, filters: int, groups: int = 1) -> Any:
    x = te.placeholder((2, channels, size, size), name="x")
    w = te.placeholder((filters, channels // groups, 3, 3), name="w")
    return te.create_prim_func([x, w, topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, groups)])


def _softmax(rows: int, columns: int) -> Any:
    x = te.placeholder((rows, columns), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def _pool(size: int) -> Any:
    """Its block names a rule of its own, which TVM does not have for processors."""
    x = te.placeholder((1, 4, size, size), name="x")
    return te.create_prim_func([x, topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NCHW")])


def _pool_gradient(size: int) -> Any:
    """A condition that differs from lane to lane."""
    x, g = te.placeholder((1, 4, size, size), name="x"), te.placeholder((1, 4, size // 2, size // 2), name="g")
    return te.create_prim_func([g, x, topi.nn.pool_grad(g, x, (2, 2), (2, 2), (0, 0, 0, 0), "max")])


KERNELS: Mapping[str, Callable[[], Any]] = {
    "product that divides": lambda: _product(48, 64, 32),
    "product of primes": lambda: _product(29, 31, 37),
    "convolution": lambda: _convolution(8, 14, 12),
    "convolution of primes": lambda: _convolution(5, 13, 7),
    "depthwise": lambda: _convolution(6, 14, 6, groups=6),
    "softmax": lambda: _softmax(37, 130),
    "pool": lambda: _pool(12),
    "pool gradient": lambda: _pool_gradient(12),
}


def _drawn(function: Any, seed: object, machine: Machine = AVX2) -> Schedule:
    return drawn(function, seed, machine)


@pytest.mark.parametrize("machine", [AVX2, ONE_CORE], ids=["2 cores", "1 core"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_schedule_from_its_stored_text_computes_the_same(kernel: str, seed: int, machine: Machine) -> None:
    function = KERNELS[kernel]()
    schedule = _drawn(function, f"{kernel} {seed}", machine)
    mistakes: list[str] = []
    stored = read_schedule(json.loads(schedule.canonical()), mistakes=mistakes)
    assert not mistakes
    assert isinstance(stored, RuleSchedule)
    assert_same_result(function, rules.apply(function, Schedule(stored.rule, dict(stored.parameters)), machine))


def test_a_product_of_primes_agrees_with_numpy() -> None:
    function = _product(29, 31, 37)
    draw = np.random.default_rng(1)
    a, b = draw.standard_normal((29, 37), np.float32), draw.standard_normal((37, 31), np.float32)
    found = run(rules.apply(function, _drawn(function, 1), AVX2), [a, b])
    np.testing.assert_allclose(found, np.maximum(a @ b, 0), atol=1e-5)


def test_the_same_data_gives_the_same_loops() -> None:
    function = _convolution(8, 14, 12)
    schedule = _drawn(function, 1)
    once, again = (rules.apply(_convolution(8, 14, 12), schedule, AVX2) for _ in range(2))
    assert str(once) == str(again)


def test_it_is_never_proposed() -> None:
    assert NAME not in [schedule.rule for schedule in rules.propose(_product(48, 64, 32), AVX2)]


@pytest.mark.parametrize("kernel", ["product that divides", "convolution", "depthwise"])
def test_every_neighbour_fits_and_differs_by_the_named_parameter(kernel: str) -> None:
    function = KERNELS[kernel]()
    schedule = _drawn(function, kernel)
    found = rules.neighbours(function, schedule, AVX2)
    assert len({name for name, _ in found}) > 2
    for name, neighbour in found:
        assert neighbour.parameters[name] != schedule.parameters[name]
        assert rules.refit(function, neighbour, AVX2) == neighbour
    assert_same_result(function, rules.apply(function, random.Random(1).choice(found)[1], AVX2))


def _tampered(schedule: Schedule) -> dict[str, Schedule]:
    tile = schedule.parameters["decision-0"]

    def changed(**parameters: tuple[int, ...]) -> Schedule:
        named = {name.replace("_", "-"): values for name, values in parameters.items()}
        return Schedule(NAME, {**schedule.parameters, **named})

    return {
        "a factor that does not divide": changed(decision_0=(*tile[:-1], tile[-1] * 7)),
        "a factor of zero": changed(decision_0=(0, *tile[1:])),
        "one factor more": changed(decision_0=(1, *tile)),
        "a vector over everything": changed(decision_1=(1, 1, 1, 4096)),
        "a category that is not there": changed(decision_3=(4,)),
        "a category below zero": changed(decision_3=(-1,)),
        "a space that is not there": changed(space=(99,)),
        "no space": changed(space=()),
        "a decision too many": changed(decision_4=(0,)),
        "a decision with no value": changed(decision_2=()),
        "a decision too few": Schedule(NAME, {k: v for k, v in schedule.parameters.items() if k != "decision-3"}),
    }


@pytest.mark.parametrize("how", _tampered(Schedule(NAME, {"decision-0": (1, 1, 1, 1)})))
def test_a_tampered_schedule_is_refused(how: str) -> None:
    function = _product(48, 4096, 32)
    schedule = _drawn(function, 1)
    rules.apply(function, schedule, AVX2)
    with pytest.raises(ScheduleRefusedError):
        rules.apply(function, _tampered(schedule)[how], AVX2)


def test_a_location_that_is_not_there_is_refused() -> None:
    function = _convolution(8, 14, 12)
    schedule = _drawn(function, 1)
    location = list(schedule.parameters)[-1]
    with pytest.raises(ScheduleRefusedError):
        rules.apply(function, Schedule(NAME, {**schedule.parameters, location: (19,)}), AVX2)


def test_a_kernel_of_plain_loops_is_refused() -> None:
    function = _product(48, 64, 32)
    schedule = _drawn(function, 1)
    with pytest.raises(ScheduleRefusedError, match="plain loops"):
        rules.apply(rules.apply(function, schedule, AVX2), schedule, AVX2)


@pytest.mark.parametrize("seed", range(6))
def test_a_schedule_is_carried_over_to_other_sizes(seed: int) -> None:
    shapes = [(48, 64, 32), (29, 31, 37), (250, 96, 100), (384, 512, 16), (7, 1000, 3)]
    choose = random.Random(seed)
    donor, receiver = choose.sample(shapes, 2)
    schedule = _drawn(_product(*donor), seed)
    function = _product(*receiver)
    carried = rules.refit(function, schedule, AVX2)
    assert carried.rule == NAME
    assert_same_result(function, rules.apply(function, carried, AVX2))


def test_a_schedule_for_other_loops_is_not_carried_over() -> None:
    with pytest.raises(ScheduleRefusedError):
        rules.refit(_softmax(37, 130), _drawn(_convolution(8, 14, 12), 1), AVX2)


@pytest.mark.parametrize("extent", [1, 12, 64, 97, 360])
@pytest.mark.parametrize("parts", [2, 4])
def test_tilings_are_all_products_and_the_nearest_is_one_of_them(extent: int, parts: int) -> None:
    found = list(tilings(extent, parts))
    assert len(set(found)) == len(found)
    assert all(math.prod(tile) == extent for tile in found)
    choose = random.Random(extent * parts)
    for _ in range(20):
        wanted = tuple(choose.randint(1, 100) for _ in range(parts))
        nearest = nearest_tiling(extent, wanted, 64)
        assert nearest in found
        assert nearest[-1] <= 64
    assert all(nearest_tiling(extent, tile, extent) == tile for tile in found)


def test_a_lane_never_chooses_for_itself() -> None:
    """TVM gives wrong numbers for a vector whose lanes differ in a condition."""
    function = _pool_gradient(12)
    for seed in range(5):
        loops: list[Any] = []
        tvm_ffi.structural_walk(rules.apply(function, _drawn(function, seed), AVX2).body, (tirx.For, loops.append))
        for loop in loops:
            calls: list[Any] = []
            tvm_ffi.structural_walk(loop.body, ((Call, tirx.Select), calls.append))
            assert loop.kind != tirx.ForKind.VECTORIZED or not calls


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (replace(AVX2.limits, generated_statements=0), "statements"),
        (replace(AVX2.limits, generated_lanes=0), "lanes"),
        (replace(AVX2.limits, generated_scratch_bytes=0), "scratch"),
    ],
)
def test_what_asks_for_too_much_is_refused(limits: Limits, told: str) -> None:
    function = _convolution(64, 28, 64)
    wide = [_drawn(function, seed) for seed in range(6)]
    messages = []
    for schedule in wide:
        try:
            rules.apply(function, schedule, replace(AVX2, limits=limits))
        except ScheduleRefusedError as error:
            messages.append(str(error))
    assert any(told in message for message in messages)


def test_what_a_task_needs_beyond_its_stack_is_scratch_of_its_own() -> None:
    machine = replace(AVX2, limits=replace(AVX2.limits, stack_bytes=64))
    function = _convolution(8, 14, 12)
    has_scratch = False
    for seed in range(5):
        written = rules.apply(function, _drawn(function, seed, machine), machine)
        loops: list[Any] = []
        tvm_ffi.structural_walk(written.body, (tirx.For, loops.append))
        inside: list[Any] = []
        for loop in loops:
            if loop.kind == tirx.ForKind.PARALLEL:
                tvm_ffi.structural_walk(loop.body, (tirx.AllocBuffer, inside.append))
        everywhere: list[Any] = []
        tvm_ffi.structural_walk(written.body, (tirx.AllocBuffer, everywhere.append))
        assert all(math.prod(map(int, node.buffer.ty.shape)) * 4 <= 64 for node in inside)
        has_scratch = has_scratch or len(everywhere) > len(inside)
        assert_same_result(function, written)
    assert has_scratch
