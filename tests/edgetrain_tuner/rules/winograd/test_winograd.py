"""Winograd's algorithm computes what the definition does: kernels against their unscheduled selves, and float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx, topi

from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.winograd.convolution_tiling import room, tiling_of
from edgetrain_tuner.rules.winograd.form import WinogradForm, find_convolution
from edgetrain_tuner.rules.winograd.rule import Winograd
from tests.edgetrain_tuner.machines import roomy
from tests.edgetrain_tuner.rules.convolutions import NARROW, WIDE, WIDEST, convolution
from tests.edgetrain_tuner.rules.unscheduled import assert_computes_the_same, assert_same_result, run, written

pytestmark = pytest.mark.compile

LARGEST_ERROR = 1e-5  # of the largest element


def _form(function: Any) -> WinogradForm | None:
    contraction = find(function)
    assert contraction is not None
    return find_convolution(contraction)


@pytest.mark.parametrize("machine", [roomy(WIDE), roomy(NARROW)], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    "geometry",
    [
        (2, 16, (14, 14), 24),
        (1, 5, (13, 13), 7),
        (3, 7, (7, 7), 17),
        (1, 32, (4, 4), 4),
        (3, 37, (9, 10), 11),
        (2, 8, (2, 37), 40),
        (2, 8, (5, 2), 12),
    ],
    ids=str,
)
@pytest.mark.parametrize("part", ["forward", "data"])
def test_a_convolution_and_its_data_gradient(part: str, geometry: Any, machine: Machine) -> None:
    assert_computes_the_same(convolution(part, *geometry), Winograd(), machine)


@pytest.mark.parametrize("pad", [0, 1, 2])
@pytest.mark.parametrize("part", ["forward", "data"])
def test_any_padding(part: str, pad: int) -> None:
    assert_computes_the_same(convolution(part, 2, 6, (9, 12), 10, pad=pad), Winograd(), roomy(WIDE))


def test_an_epilogue_gets_each_element_once() -> None:
    data, weight = te.placeholder((2, 6, 9, 9), name="data"), te.placeholder((20, 6, 3, 3), name="weight")
    bias = te.placeholder((20,), name="bias")
    sums = topi.nn.conv2d_nchw(data, weight, 1, 1, 1)
    shifted = te.compute(sums.shape, lambda n, f, y, x: tirx.tanh(sums[n, f, y, x]) + bias[f], name="shifted")
    assert_computes_the_same(te.create_prim_func([data, weight, bias, shifted]), Winograd(), roomy(WIDE))


@pytest.mark.parametrize(
    "changed",
    [
        {"depth": (5,), "kept": (13,)},
        {"depth": (5,), "kept": (5,)},
        {"width": (8,), "panel": (2,)},
        {"width": (5,), "panel": (3,)},
        {"block": (1, 2)},
        {"block": (2, 5)},
        {"rows": (1,)},
        {"block": (2, 3), "depth": (4,), "kept": (4,), "width": (8,), "panel": (2,), "rows": (3,)},
    ],
    ids=str,
)
@pytest.mark.parametrize("part", ["forward", "data"])
def test_every_way_to_cut_it_up(part: str, changed: dict[str, tuple[int, ...]]) -> None:
    channels, filters = (13, 21) if part == "forward" else (21, 13)
    function = convolution(part, 3, channels, (9, 11), filters)
    kernel = Kernel(function=function, contraction=find(function))
    whole = {"width": (16,), "panel": (1,), "block": (1, 5), "depth": (13,), "kept": (13,), "rows": (4,)}
    assert_same_result(function, Winograd().write(kernel, roomy(WIDE), {**whole, **changed}))


@pytest.mark.parametrize("part", ["forward", "data"])
def test_errors_are_a_hundred_thousandth_of_the_largest_element(part: str) -> None:
    function = convolution(part, 2, 256, (14, 14), 64)
    rewritten = written(function, Winograd(), WIDEST)
    assert rewritten is not None
    random = np.random.default_rng(7)
    shapes = [tuple(int(extent) for extent in parameter.ty.shape) for parameter in function.params]
    first, second = (random.standard_normal(shape).astype(np.float32) for shape in shapes[:2])
    exact = _exact(part, first.astype(np.float64), second.astype(np.float64))
    computed = run(rewritten, [first, second])
    assert np.abs(computed - exact).max() <= LARGEST_ERROR * np.abs(exact).max()
    assert np.array_equal(computed, run(rewritten, [first, second]))


def _exact(part: str, image: Any, weight: Any) -> Any:
    """Tap by tap; a data gradient is a convolution with the taps in reverse and the weight's sides exchanged."""
    if part == "data":
        weight = weight.swapaxes(0, 1)[:, :, ::-1, ::-1]
    height, width = image.shape[2:]
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sum(
        np.einsum("ncyx,fc->nfyx", padded[:, :, r : r + height, s : s + width], weight[:, :, r, s])
        for r in range(3)
        for s in range(3)
    )


@pytest.mark.parametrize(
    "function",
    [
        convolution("forward", 2, 64, (28, 28), 64, stride=2),
        convolution("data", 2, 64, (28, 28), 64, stride=2),
        convolution("forward", 2, 64, (28, 28), 64, taps=5, pad=2),
        convolution("forward", 2, 64, (28, 28), 64, taps=1, pad=0),
        convolution("forward", 2, 64, (28, 28), 64, dilation=2),
        convolution("weight", 2, 64, (28, 28), 64),
    ],
    ids=["stride 2", "data gradient of stride 2", "5 x 5", "1 x 1", "dilated", "weight gradient"],
)
def test_other_windows_are_left_to_other_rules(function: Any) -> None:
    assert _form(function) is None
    assert written(function, Winograd(), WIDE) is None


def test_channels_one_by_one_are_left_to_other_rules() -> None:
    x, w = te.placeholder((8, 64, 56, 56), name="x"), te.placeholder((64, 1, 3, 3), name="w")
    function = te.create_prim_func([x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)])
    assert written(function, Winograd(), WIDE) is None


def test_small_kernels_keep_their_memory() -> None:
    assert written(convolution("forward", 16, 8, (8, 8), 16), Winograd(), WIDE) is None


def test_few_channels_are_faster_the_direct_way() -> None:
    function = convolution("forward", 4, 3, (224, 224), 32)
    assert _form(function) is not None
    assert rules.propose(function, WIDEST)[0].rule == "packed-product"


@pytest.mark.parametrize("machine", [WIDE, NARROW, WIDEST], ids=["wide", "narrow", "widest"])
@pytest.mark.parametrize("geometry", [(4, 64, (56, 56), 64), (4, 256, (14, 14), 256)], ids=str)
def test_a_large_convolution_takes_it_first_within_a_quarter_of_what_it_reads(geometry: Any, machine: Machine) -> None:
    function = convolution("forward", *geometry)
    first = rules.propose(function, machine)[0]
    assert first.rule == "winograd"
    form = _form(function)
    assert form is not None
    batch, channels, size, filters = geometry
    read = 4 * (batch * channels * math.prod(size) + filters * channels * 9)
    assert tiling_of(form, machine, first.parameters).scratch_bytes <= room(form, machine) <= read // 4


def test_a_data_gradient_meets_its_taps_in_reverse() -> None:
    forward, data = _form(convolution("forward", 2, 8, (9, 9), 16)), _form(convolution("data", 2, 8, (9, 9), 16))
    assert forward is not None
    assert data is not None
    assert [forward.rows.tap_at(n) for n in range(3)] == [0, 1, 2]
    assert [data.rows.tap_at(n) for n in range(3)] == [2, 1, 0]
    assert forward.rows.reach.bases == data.rows.reach.bases == (-1,)
    assert (forward.is_filter_major, data.is_filter_major) == (True, False)
