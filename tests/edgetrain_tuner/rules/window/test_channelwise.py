"""Writing a sliding window out changes its loops, never its results: every kernel against its unscheduled self."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tvm_ffi
from tvm import te, tirx, topi

from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules import schedule
from edgetrain_tuner.rules.generic import Generic
from edgetrain_tuner.rules.window.channelwise import Channelwise
from tests.edgetrain_tuner.machines import eager
from tests.edgetrain_tuner.rules.unscheduled import assert_computes_the_same, written

pytestmark = pytest.mark.compile

WIDE = eager(Machine(vector_bits=512, vector_registers=32, cores=2))
MIDDLE = eager(Machine(vector_bits=256, vector_registers=16, cores=2))
NARROW = eager(Machine(vector_bits=128, vector_registers=32, cores=1))
PARTS = ("forward", "data", "weight")


def _depthwise(
    part: str,
    data: tuple[int, int, int, int],
    taps: tuple[int, int],
    *,
    stride: int = 1,
    pads: tuple[int, int] | None = None,
    dilation: int = 1,
    multiplier: int = 1,
) -> Any:
    batch, channels, *size = data
    pads = (taps[0] // 2, taps[1] // 2) if pads is None else pads
    outputs = tuple(
        (n + 2 * p - (t - 1) * dilation - 1) // stride + 1 for n, p, t in zip(size, pads, taps, strict=True)
    )
    window = Window(strides=(stride, stride), pads=pads, dilation=(dilation, dilation), groups=channels)
    x = te.placeholder(data, name="x")
    w = te.placeholder((channels * multiplier, 1, *taps), name="w")
    gradient = te.placeholder((batch, channels * multiplier, *outputs), name="gradient")
    if part == "forward":
        return te.create_prim_func([x, w, topi.nn.group_conv2d_nchw(x, w, stride, pads, dilation, channels)])
    if part == "data":
        result = conv2d_data_gradient(gradient, w, shape=data, window=window)
        return te.create_prim_func([gradient, w, result])
    result = conv2d_weight_gradient(x, gradient, shape=tuple(int(d) for d in w.shape), window=window)
    return te.create_prim_func([x, gradient, result])


@pytest.mark.parametrize("machine", [WIDE, MIDDLE, NARROW], ids=["wide", "middle", "narrow"])
@pytest.mark.parametrize("geometry", [(14, 3, 1), (13, 3, 2), (7, 5, 1), (29, 5, 2), (23, 7, 3), (19, 7, 1)], ids=str)
@pytest.mark.parametrize("part", PARTS)
def test_a_depthwise_convolution_and_its_gradients(part: str, geometry: tuple[int, int, int], machine: Machine) -> None:
    size, taps, stride = geometry
    assert_computes_the_same(_depthwise(part, (2, 5, size, size), (taps, taps), stride=stride), Channelwise(), machine)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("part", PARTS)
def test_rows_and_columns_differ(part: str, stride: int) -> None:
    assert_computes_the_same(
        _depthwise(part, (3, 4, 11, 26), (5, 3), stride=stride, pads=(1, 2)), Channelwise(), MIDDLE
    )


@pytest.mark.parametrize("part", PARTS)
def test_without_padding_nothing_is_outside(part: str) -> None:
    assert_computes_the_same(_depthwise(part, (2, 6, 17, 18), (3, 3), pads=(0, 0)), Channelwise(), MIDDLE)


@pytest.mark.parametrize("part", PARTS)
def test_taps_may_lie_apart(part: str) -> None:
    assert_computes_the_same(_depthwise(part, (2, 3, 15, 16), (3, 3), pads=(2, 2), dilation=2), Channelwise(), MIDDLE)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("part", PARTS)
def test_a_map_that_no_cache_holds_comes_in_bands(part: str, stride: int) -> None:
    function = _depthwise(part, (2, 3, 31, 20), (3, 3), stride=stride)
    whole = written(function, Channelwise(), MIDDLE)
    small = replace(MIDDLE, limits=replace(MIDDLE.limits, plane_bytes=1024))
    assert _plane_elements(written(function, Channelwise(), small)) < _plane_elements(whole)
    assert_computes_the_same(function, Channelwise(), small)


def _plane_elements(function: Any) -> int:
    """Of the first plane that the kernel allocates, for one task."""
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, found.append))
    return next(int(node.buffer.ty.shape[-1]) for node in found if str(node.buffer.name) == "plane")


def test_one_row_of_each_channel() -> None:
    x, w = te.placeholder((3, 5, 37), name="x"), te.placeholder((5, 4), name="w")
    padded = topi.nn.pad(x, (0, 0, 2), (0, 0, 1))
    k = te.reduce_axis((0, 4), "k")
    result = te.compute((3, 5, 37), lambda n, c, t: te.sum(padded[n, c, t + k] * w[c, k], axis=k))
    assert_computes_the_same(te.create_prim_func([x, w, result]), Channelwise(), MIDDLE)


def test_several_filters_for_a_channel() -> None:
    assert_computes_the_same(_depthwise("forward", (2, 3, 12, 12), (3, 3), multiplier=2), Channelwise(), MIDDLE)


@pytest.mark.parametrize("behind", ["a maximum", "a call", "a choice"])
@pytest.mark.parametrize("stride", [1, 2])
def test_what_stands_before_and_behind_it_is_computed_on_the_way(stride: int, behind: str) -> None:
    x, w = te.placeholder((2, 6, 13, 13), name="x"), te.placeholder((6, 1, 3, 3), name="w")
    bias = te.placeholder((6, 1, 1), name="bias")
    gate = te.compute(x.shape, lambda *at: tirx.tanh(x[at]) + 1.0, name="gate")
    product = topi.nn.group_conv2d_nchw(gate, w, stride, 1, 1, 6)
    shifted = topi.add(product, bias)
    results = {
        "a maximum": lambda: topi.nn.relu(shifted),
        "a call": lambda: topi.tanh(shifted),
        "a choice": lambda: topi.where(topi.greater(shifted, topi.full_like(shifted, 0.5)), shifted, topi.exp(shifted)),
    }
    result = results[behind]()
    assert_computes_the_same(te.create_prim_func([x, w, bias, result]), Channelwise(), MIDDLE)


def test_an_update_behind_the_weight_gradient() -> None:
    x, g = te.placeholder((2, 6, 13, 13), name="x"), te.placeholder((2, 6, 13, 13), name="g")
    w = te.placeholder((6, 1, 3, 3), name="w")
    window = Window(strides=(1, 1), pads=(1, 1), dilation=(1, 1), groups=6)
    gradient = conv2d_weight_gradient(x, g, shape=(6, 1, 3, 3), window=window)
    updated = te.compute(w.shape, lambda *at: w[at] - 0.1 * gradient[at], name="updated")
    assert_computes_the_same(te.create_prim_func([x, g, w, updated]), Channelwise(), MIDDLE)


@pytest.mark.parametrize("part", PARTS)
def test_the_rule_is_asked_before_the_generic_one(part: str) -> None:
    function = _depthwise(part, (2, 16, 28, 28), (3, 3))
    chosen, general = schedule(function, MIDDLE), written(function, Generic(), MIDDLE)
    assert str(chosen) == str(written(function, Channelwise(), MIDDLE)) != str(general)


@pytest.mark.parametrize("case", ["elementwise", "a sum", "a matrix product", "several channels at once"])
def test_another_kernel_is_left_to_other_rules(case: str) -> None:
    x, y = te.placeholder((8, 16, 12, 12), name="x"), te.placeholder((8, 16, 12, 12), name="y")
    w = te.placeholder((16, 4, 3, 3), name="w")
    k = te.reduce_axis((0, 12), "k")
    results = {
        "elementwise": lambda: topi.nn.relu(x),
        "a sum": lambda: topi.sum(x, axis=3),
        "a matrix product": lambda: te.compute(x.shape, lambda a, b, c, d: te.sum(x[a, b, c, k] * y[a, b, d, k], k)),
        "several channels at once": lambda: topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 4),
    }
    function = te.create_prim_func([x, *([y] if "product" in case else [w] if "once" in case else []), results[case]()])
    assert written(function, Channelwise(), WIDE) is None


def test_a_scalar_machine_keeps_its_memory() -> None:
    scalar = Machine(vector_bits=32, vector_registers=16, cores=1)
    proposed = rules.propose(_depthwise("forward", (2, 16, 28, 28), (3, 3)), scalar)
    assert [schedule.rule for schedule in proposed] == ["register-tile", "generic"]
