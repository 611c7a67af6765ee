"""Tiles in registers change a kernel's loops, never its results: every kernel against its unscheduled self."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tvm_ffi
from tvm import te, tirx, topi

from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.generic import Generic
from edgetrain_tuner.rules.product.register_tile import RegisterTile
from edgetrain_tuner.rules.product.register_tiling import find_sum, is_short, tiling_of
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from tests.edgetrain_tuner.rules.unscheduled import assert_same_result, written

pytestmark = pytest.mark.compile

SCALAR = Machine(vector_bits=32, vector_registers=32, cores=1)
VECTORS = Machine(vector_bits=128, vector_registers=32, cores=1)


def _product(kind: str, rows: int, columns: int, depth: int) -> Any:
    a = te.placeholder((rows, depth) if kind[0] == "n" else (depth, rows), name="a")
    b = te.placeholder((depth, columns) if kind[1] == "n" else (columns, depth), name="b")
    k = te.reduce_axis((0, depth), "k")

    def element(i: Any, j: Any) -> Any:
        return te.sum((a[i, k] if kind[0] == "n" else a[k, i]) * (b[k, j] if kind[1] == "n" else b[j, k]), axis=k)

    return te.create_prim_func([a, b, topi.nn.relu(te.compute((rows, columns), element, name="product"))])


def _convolution(
    part: str, channels: int, size: int, filters: int, *, taps: int = 3, stride: int = 1, pad: int = 1, groups: int = 1
) -> Any:
    outputs = (size + 2 * pad - taps) // stride + 1
    window = Window(strides=(stride, stride), pads=(pad, pad), dilation=(1, 1), groups=groups)
    x = te.placeholder((2, channels, size, size), name="x")
    w = te.placeholder((filters, channels // groups, taps, taps), name="w")
    g = te.placeholder((2, filters, outputs, outputs), name="g")
    if part == "forward":
        return te.create_prim_func([x, w, topi.nn.group_conv2d_nchw(x, w, stride, pad, 1, groups)])
    if part == "data":
        return te.create_prim_func([g, w, conv2d_data_gradient(g, w, shape=(2, channels, size, size), window=window)])
    shape = (filters, channels // groups, taps, taps)
    return te.create_prim_func([x, g, conv2d_weight_gradient(x, g, shape=shape, window=window)])


KERNELS: Mapping[str, Callable[[], Any]] = {
    "product that divides": lambda: _product("nn", 16, 24, 32),
    "product of primes": lambda: _product("nt", 7, 13, 11),
    "product of one row": lambda: _product("tn", 1, 13, 31),
    "product of one column": lambda: _product("nn", 17, 1, 19),
    "convolution": lambda: _convolution("forward", 8, 8, 8),
    "convolution of a wide map": lambda: _convolution("forward", 3, 29, 5),
    "convolution with large taps": lambda: _convolution("forward", 3, 13, 5, taps=7, pad=3),
    "convolution of single taps": lambda: _convolution("forward", 6, 9, 5, taps=1, pad=0),
    "data gradient": lambda: _convolution("data", 5, 11, 7),
    "data gradient of stride 2": lambda: _convolution("data", 5, 13, 7, stride=2),
    "data gradient of stride 3": lambda: _convolution("data", 4, 14, 3, taps=5, stride=3, pad=2),
    "data gradient of single taps and stride 2": lambda: _convolution("data", 4, 9, 6, taps=1, stride=2, pad=0),
    "weight gradient": lambda: _convolution("weight", 5, 11, 7),
    "weight gradient of a wide map": lambda: _convolution("weight", 2, 29, 3),
    "weight gradient of stride 2": lambda: _convolution("weight", 5, 13, 7, stride=2),
    "convolution in groups": lambda: _convolution("forward", 6, 9, 4, groups=2),
    "depthwise": lambda: _convolution("forward", 5, 13, 5, groups=5),
    "depthwise data gradient": lambda: _convolution("data", 5, 13, 5, stride=2, groups=5),
    "depthwise weight gradient": lambda: _convolution("weight", 4, 13, 4, groups=4),
}


def _allocated(function: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, found.append))
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_the_same_in_tiles_and_needs_no_scratch(name: str) -> None:
    function = KERNELS[name]()
    schedule, tiled = rules.scheduled(function, SCALAR)
    assert schedule.rule == "register-tile"
    assert all(str(node.buffer.ty.storage_scope) == "local" for node in _allocated(tiled))
    assert_same_result(function, tiled)


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("name", KERNELS)
def test_a_walk_over_neighbours_computes_the_same_all_the_way(name: str, seed: int) -> None:
    function, choose = KERNELS[name](), random.Random(f"{name} {seed}")
    schedule = rules.propose(function, SCALAR)[0]
    for _ in range(3):
        schedule = choose.choice(rules.neighbours(function, schedule, SCALAR))[1]
    assert_same_result(function, rules.apply(function, schedule, SCALAR))


def test_no_condition_is_left_in_a_padded_convolution_but_that_of_its_rows() -> None:
    """Of 3 rows of taps at most one is outside; columns are decided while the kernel is written."""
    text = rules.schedule(_convolution("forward", 8, 29, 8), SCALAR).script()
    assert "if_then_else" not in text
    assert "Select" not in text
    assert "if " in text


def test_products_with_padding_are_not_computed() -> None:
    """One row of a map as wide as the window: the outer outputs meet two taps, the middle one three."""
    x, w = te.placeholder((4, 3), name="x"), te.placeholder((2, 4, 3), name="w")
    padded = topi.nn.pad(x, (0, 1), (0, 1))
    c, k = te.reduce_axis((0, 4), "c"), te.reduce_axis((0, 3), "k")
    result = te.compute((2, 3), lambda f, t: te.sum(padded[c, t + k] * w[f, c, k], axis=[c, k]), name="result")
    function = te.create_prim_func([x, w, result])
    tiled = rules.apply(function, Schedule("register-tile", {"tile": (1, 3), "taps": (3,)}), SCALAR)
    products: list[Any] = []
    tvm_ffi.structural_walk(tiled.body, (tirx.Mul, lambda node: products.append(node) if _is_float(node) else None))
    assert len(products) == 7
    assert_same_result(function, tiled)


def _is_float(node: Any) -> bool:
    return str(node.ty.dtype) == "float32"


@pytest.mark.parametrize("name", KERNELS)
def test_code_stays_small(name: str) -> None:
    function = KERNELS[name]()
    total = find_sum(function)
    assert total is not None
    for schedule in (p for p in rules.propose(function, SCALAR) if p.rule == "register-tile"):
        assert is_short(total, tiling_of(total, SCALAR, schedule.parameters), SCALAR)


def test_vectors_are_left_to_other_rules() -> None:
    function = KERNELS["convolution"]()
    assert written(function, RegisterTile(), VECTORS) is None
    kernel = Kernel(function=function, contraction=find(function))
    with pytest.raises(ScheduleRefusedError, match="vectors"):
        RegisterTile().check(kernel, VECTORS, {"tile": (1, 1, 1, 1), "taps": (1,)})


@pytest.mark.parametrize("case", ["elementwise", "a sum", "a maximum", "of integers"])
def test_another_kernel_is_left_to_other_rules(case: str) -> None:
    x = te.placeholder((8, 16), "int32" if case == "of integers" else "float32", name="x")
    k = te.reduce_axis((0, 16), "k")
    results = {
        "elementwise": lambda: topi.nn.relu(x),
        "a sum": lambda: topi.sum(x, axis=1),
        "a maximum": lambda: topi.max(x, axis=1),
        "of integers": lambda: te.compute((8, 8), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k)),
    }
    function = te.create_prim_func([x, results[case]()])
    assert str(rules.schedule(function, SCALAR)) == str(written(function, Generic(), SCALAR))


@pytest.mark.parametrize(
    "changed",
    [{"tile": (1, 3, 1, 8)}, {"tile": (1, 1, 1, 9)}, {"tile": (1, 2)}, {"taps": (4,)}, {"taps": (0,)}, {"rows": (1,)}],
    ids=str,
)
def test_what_does_not_fit_is_refused(changed: Mapping[str, tuple[int, ...]]) -> None:
    function = KERNELS["convolution"]()
    fitting = {"tile": (1, 2, 1, 8), "taps": (3,)}
    rules.apply(function, Schedule("register-tile", fitting), SCALAR)
    with pytest.raises(ScheduleRefusedError):
        rules.apply(function, Schedule("register-tile", {**fitting, **changed}), SCALAR)
