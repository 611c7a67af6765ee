"""Weight gradients by Winograd's algorithm: kernels against their unscheduled selves, and float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tvm import te

from edgetrain.graph.gradients.convolution import conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.winograd.form import WinogradForm, find_weight_gradient
from edgetrain_tuner.rules.winograd.rule import WinogradWeights
from edgetrain_tuner.rules.winograd.weights_tiling import room, tiling_of
from tests.edgetrain_tuner.machines import roomy
from tests.edgetrain_tuner.rules.convolutions import NARROW, WIDE, WIDEST, convolution
from tests.edgetrain_tuner.rules.unscheduled import assert_computes_the_same, assert_same_result, run, written

pytestmark = pytest.mark.compile

LARGEST_ERROR = 1e-5  # of the largest element


def _form(function: Any) -> WinogradForm | None:
    contraction = find(function)
    assert contraction is not None
    return find_weight_gradient(contraction)


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
        (2, 8, (5, 2), 1 << 6),
    ],
    ids=str,
)
def test_a_weight_gradient(geometry: Any, machine: Machine) -> None:
    assert_computes_the_same(convolution("weight", *geometry), WinogradWeights(), machine)


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_any_padding(pad: int) -> None:
    assert_computes_the_same(convolution("weight", 2, 6, (9, 12), 10, pad=pad), WinogradWeights(), roomy(WIDE))


def test_an_update_behind_it_gets_each_element_once() -> None:
    window = Window(strides=(1, 1), pads=(1, 1), dilation=(1, 1))
    data, gradient = te.placeholder((2, 6, 9, 9), name="data"), te.placeholder((2, 20, 9, 9), name="gradient")
    weight = te.placeholder((20, 6, 3, 3), name="weight")
    slope = conv2d_weight_gradient(data, gradient, shape=(20, 6, 3, 3), window=window)
    updated = te.compute(weight.shape, lambda *at: weight[at] - 0.125 * slope[at], name="updated")
    assert_computes_the_same(te.create_prim_func([data, gradient, weight, updated]), WinogradWeights(), roomy(WIDE))


@pytest.mark.parametrize(
    "changed",
    [
        {"width": (8,), "panel": (2,)},
        {"width": (8,), "panel": (1,), "side": (1,)},
        {"rows": (1,), "side": (13,)},
        {"rows": (6,), "side": (2,)},
        {"side": (1,)},
        {"block": (1, 2)},
        {"block": (2, 5)},
        {"block": (3, 5)},
        {"width": (8,), "panel": (2,), "rows": (3,), "side": (2,), "block": (2, 3)},
    ],
    ids=str,
)
def test_every_way_to_cut_it_up(changed: dict[str, tuple[int, ...]]) -> None:
    function = convolution("weight", 3, 13, (9, 11), 21)
    kernel = Kernel(function=function, contraction=find(function))
    whole = {"width": (16,), "rows": (4,), "panel": (1,), "side": (6,), "block": (1, 5)}
    assert_same_result(function, WinogradWeights().write(kernel, roomy(WIDE), {**whole, **changed}))


def test_errors_are_a_hundred_thousandth_of_the_largest_element() -> None:
    function = convolution("weight", 4, 64, (28, 28), 64)
    rewritten = written(function, WinogradWeights(), WIDEST)
    assert rewritten is not None
    random = np.random.default_rng(7)
    image, gradient = (random.standard_normal((4, 64, 28, 28)).astype(np.float32) for _ in range(2))
    exact = _exact(image.astype(np.float64), gradient.astype(np.float64))
    computed = run(rewritten, [image, gradient])
    assert np.abs(computed - exact).max() <= LARGEST_ERROR * np.abs(exact).max()
    assert np.array_equal(computed, run(rewritten, [image, gradient]))


def _exact(image: Any, gradient: Any) -> Any:
    height, width = image.shape[2:]
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = [
        np.einsum("ncyx,nfyx->fc", padded[:, :, r : r + height, s : s + width], gradient)
        for r in range(3)
        for s in range(3)
    ]
    return np.stack(taps, axis=-1).reshape(*taps[0].shape, 3, 3)


@pytest.mark.parametrize(
    "function",
    [
        convolution("weight", 2, 64, (28, 28), 64, stride=2),
        convolution("weight", 2, 64, (28, 28), 64, taps=5, pad=2),
        convolution("weight", 2, 64, (28, 28), 64, taps=1, pad=0),
        convolution("weight", 2, 64, (28, 28), 64, dilation=2),
        convolution("forward", 2, 64, (28, 28), 64),
        convolution("data", 2, 64, (28, 28), 64),
    ],
    ids=["stride 2", "5 x 5", "1 x 1", "dilated", "forward", "data gradient"],
)
def test_other_windows_are_left_to_other_rules(function: Any) -> None:
    assert _form(function) is None
    assert written(function, WinogradWeights(), WIDE) is None


def test_small_kernels_keep_their_memory() -> None:
    assert written(convolution("weight", 16, 8, (8, 8), 16), WinogradWeights(), WIDE) is None


def test_few_channels_are_faster_the_direct_way() -> None:
    function = convolution("weight", 4, 3, (224, 224), 32)
    assert _form(function) is not None
    assert rules.propose(function, WIDEST)[0].rule == "packed-product"


@pytest.mark.parametrize("machine", [WIDE, NARROW, WIDEST], ids=["wide", "narrow", "widest"])
@pytest.mark.parametrize("geometry", [(4, 64, (56, 56), 64), (4, 256, (14, 14), 256)], ids=str)
def test_a_large_one_takes_it_first_within_a_quarter_of_what_it_reads_and_writes(
    geometry: Any, machine: Machine
) -> None:
    function = convolution("weight", *geometry)
    first = rules.propose(function, machine)[0]
    assert first.rule == "winograd-weights"
    form = _form(function)
    assert form is not None
    batch, channels, size, filters = geometry
    touched = 4 * (batch * (channels + filters) * math.prod(size) + filters * channels * 9)
    assert tiling_of(form, machine, first.parameters).scratch_bytes <= room(form, machine) <= touched // 4
