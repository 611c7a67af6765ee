"""Writing a contraction out changes its loops, never its results: every kernel against its unscheduled self."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx, topi

from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import extent_of, find, is_contiguous
from edgetrain_tuner.rules.product.blocking import choose_blocking
from edgetrain_tuner.rules.product.packed_product import PackedProduct
from edgetrain_tuner.rules.product.vector_side import AS_FOUND, TRANSPOSED, vector_sides
from edgetrain_tuner.rules.rule import Kernel, refitted
from tests.edgetrain_tuner.machines import eager
from tests.edgetrain_tuner.rules.unscheduled import assert_same_result, written

pytestmark = pytest.mark.compile

WIDE = eager(Machine(vector_bits=256, vector_registers=16, cores=2))
NARROW = eager(Machine(vector_bits=128, vector_registers=32, cores=1))


def _product(kind: str, rows: int, columns: int, depth: int, *, batch: int = 1, has_epilogue: bool = False) -> Any:
    """`kind` is two letters, n or t for either side: as the formula has it, or transposed."""
    a = te.placeholder((batch, *((rows, depth) if kind[0] == "n" else (depth, rows))), name="a")
    b = te.placeholder((batch, *((depth, columns) if kind[1] == "n" else (columns, depth))), name="b")
    bias = te.placeholder((columns,), name="bias")
    k = te.reduce_axis((0, depth), "k")

    def element(s: Any, i: Any, j: Any) -> Any:
        left = a[s, i, k] if kind[0] == "n" else a[s, k, i]
        right = b[s, k, j] if kind[1] == "n" else b[s, j, k]
        return te.sum(left * right, axis=k)

    product = te.compute((batch, rows, columns), element, name="product")
    if not has_epilogue:
        return te.create_prim_func([a, b, product])
    shifted = te.compute(product.shape, lambda s, i, j: tirx.tanh(product[s, i, j]) + bias[j], name="shifted")
    return te.create_prim_func([a, b, bias, shifted])


def _convolution(
    part: str, batch: int, channels: int, size: int, filters: int, taps: int, stride: int, *, dilation: int = 1
) -> Any:
    pad = taps // 2 * dilation
    outputs = (size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
    window = Window(strides=(stride, stride), pads=(pad, pad), dilation=(dilation, dilation))
    data = te.placeholder((batch, channels, size, size), name="data")
    weight = te.placeholder((filters, channels, taps, taps), name="weight")
    gradient = te.placeholder((batch, filters, outputs, outputs), name="gradient")
    if part == "forward":
        result = topi.nn.relu(topi.nn.conv2d_nchw(data, weight, stride, pad, dilation))
        return te.create_prim_func([data, weight, result])
    if part == "data":
        result = conv2d_data_gradient(gradient, weight, shape=(batch, channels, size, size), window=window)
        return te.create_prim_func([gradient, weight, result])
    result = conv2d_weight_gradient(data, gradient, shape=(filters, channels, taps, taps), window=window)
    return te.create_prim_func([data, gradient, result])


def assert_each_side_computes_the_same(function: Any, machine: Machine) -> None:
    rule, kernel = PackedProduct(), Kernel(function=function, contraction=find(function))
    proposed = rule.propose(kernel, machine)
    assert proposed is not None
    for side in rule.choices(kernel, machine, "side", {}):
        assert_same_result(function, rule.write(kernel, machine, refitted(rule, kernel, machine, {"side": side})))


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("sizes", [(64, 48, 32), (31, 37, 29), (5, 17, 4), (2, 200, 7), (130, 9, 300)])
@pytest.mark.parametrize("kind", ["nn", "nt", "tn", "tt"])
def test_a_matrix_product_of_any_size(kind: str, sizes: tuple[int, int, int], machine: Machine) -> None:
    assert_each_side_computes_the_same(_product(kind, *sizes), machine)


@pytest.mark.parametrize("depth", [24, 1500], ids=["in one part", "in several parts"])
def test_a_batch_of_products_with_an_epilogue(depth: int) -> None:
    assert_each_side_computes_the_same(_product("nt", 13, 21, depth, batch=3, has_epilogue=True), WIDE)


@pytest.mark.parametrize(
    "geometry",
    [
        (2, 16, 14, 24, 3, 1),
        (1, 5, 13, 7, 3, 2),
        (2, 8, 16, 16, 3, 2),
        (3, 6, 9, 10, 1, 1),
        (2, 3, 23, 8, 7, 2),
        (2, 4, 11, 6, 5, 3),
        (2, 4, 9, 6, 1, 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("part", ["forward", "data", "weight"])
def test_a_convolution_and_its_gradients(part: str, geometry: tuple[int, int, int, int, int, int]) -> None:
    assert_each_side_computes_the_same(_convolution(part, *geometry), WIDE)


@pytest.mark.parametrize("part", ["forward", "data", "weight"])
def test_a_dilated_convolution_and_its_gradients(part: str) -> None:
    assert_each_side_computes_the_same(_convolution(part, 2, 6, 13, 20, 3, 1, dilation=2), WIDE)


@pytest.mark.parametrize("channels", [32, 31])
@pytest.mark.parametrize("size", [7, 14, 10])
def test_a_choice_behind_a_gradient(size: int, channels: int) -> None:
    gradient, weight = te.placeholder((2, 24, size, size)), te.placeholder((24, channels, 1, 1))
    kept = te.placeholder((2, channels, size, size), name="kept")
    window = Window(strides=(1, 1), pads=(0, 0), dilation=(1, 1))
    pulled = conv2d_data_gradient(gradient, weight, shape=kept.shape, window=window)
    zero, half = tirx.FloatImm("float32", 0.0), tirx.FloatImm("float32", 0.5)

    def clipped(*i: Any) -> Any:
        return tirx.Select(tirx.all(kept[i] > zero, kept[i] < half), pulled[i], zero)

    function = te.create_prim_func([gradient, weight, kept, te.compute(kept.shape, clipped, name="clipped")])
    for machine in (WIDE, NARROW, eager(Machine(vector_bits=512, vector_registers=32, cores=1))):
        assert_each_side_computes_the_same(function, machine)


def test_what_a_block_reaches_is_copied_with_its_padding() -> None:
    found = find(_convolution("forward", 2, 16, 14, 24, 3, 1))
    assert found is not None
    reach = vector_sides(found)[TRANSPOSED].reach
    assert reach is not None
    assert reach.shape((2, 14, 14, 16, 3, 3)) == (2, 16, 16, 16)
    assert reach.shape((1, 4, 14, 5, 3, 3)) == (1, 5, 6, 16)


def test_a_product_needs_no_copy_on_either_side() -> None:
    found = find(_product("nt", 32, 48, 16))
    assert found is not None
    assert [side.reach for side in vector_sides(found).values()] == [None, None]


def test_the_weight_of_a_1x1_convolution_is_contiguous_along_its_channels() -> None:
    """Its last axes have one element each: there is nothing along them."""
    forward, data = find(_convolution("forward", 2, 16, 14, 24, 1, 1)), find(_convolution("data", 2, 16, 14, 24, 1, 1))
    assert forward is not None
    assert data is not None
    assert is_contiguous(forward.a, forward.k[-1])
    assert is_contiguous(data.a, data.i[-1])
    assert not is_contiguous(data.a, data.k[-1])


def test_a_panel_that_few_rows_read_stays_in_the_first_level_cache() -> None:
    """Two rows of sums cannot wait for what comes from the next cache; four rows of a deep product can."""
    few = find(_convolution("data", 4, 40, 28, 240, 1, 1))
    many = find(_product("nn", 1024, 384, 384))
    assert few is not None
    assert many is not None
    avx512 = eager(Machine(vector_bits=512, vector_registers=32, cores=2))
    narrow, wide = (choose_blocking(vector_sides(found)[AS_FOUND], avx512) for found in (few, many))
    assert narrow.tile.rows < 4 <= wide.tile.rows
    assert narrow.tile.width * narrow.depth * 4 <= 48 * 1024 < wide.tile.width * wide.depth * 4


def test_rows_of_a_tile_lie_close_together_where_columns_are_read() -> None:
    """(4, 1, 1) leaves nothing over, and reads four lines of the cache for four elements."""
    found = find(_convolution("data", 4, 320, 7, 1280, 1, 1))
    assert found is not None
    avx512 = eager(Machine(vector_bits=512, vector_registers=32, cores=2))
    blocking_found = choose_blocking(vector_sides(found)[TRANSPOSED], avx512)
    assert blocking_found.tile.row_shape[-1] == 7


def test_a_guard_that_is_no_tensors_bound_keeps_the_image_in_vectors() -> None:
    """A triangle of B: a condition that ties k to j cannot be resolved by padding."""
    a, b = te.placeholder((32, 24), name="a"), te.placeholder((24, 40), name="b")
    k = te.reduce_axis((0, 24), "k")
    zero = tirx.const(0.0, "float32")
    result = te.compute(
        (32, 40), lambda i, j: te.sum(a[i, k] * tirx.if_then_else(k <= j, b[k, j], zero), axis=k), name="result"
    )
    function = te.create_prim_func([a, b, result])
    found = find(function)
    assert found is not None
    assert list(vector_sides(found)) == [AS_FOUND]
    assert_each_side_computes_the_same(function, WIDE)


def test_taps_that_no_phase_of_a_stride_meets_are_passed_over() -> None:
    found = find(_convolution("data", 2, 8, 16, 16, 3, 2))
    assert found is not None
    assert found.present is not None
    assert found.transposed().present is found.present


def test_a_data_gradient_whose_phases_are_of_the_weight_alone() -> None:
    """Taps as many as the stride and no padding: each position meets one tap of each row, the last ones none."""
    window = Window(strides=(3, 3), pads=(0, 0), dilation=(1, 1))
    gradient, weight = te.placeholder((2, 6, 3, 3), name="gradient"), te.placeholder((6, 4, 3, 3), name="weight")
    result = conv2d_data_gradient(gradient, weight, shape=(2, 4, 11, 11), window=window)
    assert_each_side_computes_the_same(te.create_prim_func([gradient, weight, result]), WIDE)


def test_a_strided_data_gradient_multiplies_no_more_than_the_forward_pass() -> None:
    """The phases of the stride come apart: 4 phases of ⌈3/2⌉² taps, not 9 taps at every position."""
    found = find(_convolution("data", 2, 8, 16, 16, 3, 2))
    assert found is not None
    assert extent_of(found.s) == 4
    assert found.multiply_adds == 2 * 8 * 16 * 16 * 16 * 4


@pytest.mark.parametrize("case", ["elementwise", "a sum", "a maximum", "a channel by itself", "of integers"])
def test_another_kernel_is_left_to_other_rules(case: str) -> None:
    x = te.placeholder((8, 16, 12, 12), "int32" if case == "of integers" else "float32", name="x")
    k = te.reduce_axis((0, 12), "k")
    w = te.placeholder((16, 1, 3, 3), name="w")
    results = {
        "elementwise": lambda: topi.nn.relu(x),
        "a sum": lambda: topi.sum(x, axis=3),
        "a maximum": lambda: topi.max(x, axis=3),
        "a channel by itself": lambda: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
        "of integers": lambda: te.compute(
            (8, 16, 12, 8), lambda a, b, c, d: te.sum(x[a, b, c, k] * x[d, b, c, k], axis=k)
        ),
    }
    inputs = [x, w] if case == "a channel by itself" else [x]
    assert written(te.create_prim_func([*inputs, results[case]()]), PackedProduct(), WIDE) is None


def test_a_scalar_machine_keeps_its_memory() -> None:
    scalar = eager(Machine(vector_bits=32, vector_registers=16, cores=1))
    proposed = rules.propose(_product("nn", 64, 64, 64), scalar)
    assert [schedule.rule for schedule in proposed] == ["register-tile", "generic"]


@pytest.mark.parametrize(("batch", "side"), [(1, TRANSPOSED), (4, AS_FOUND)], ids=["small", "large"])
def test_a_large_image_is_not_read_down_its_columns(batch: int, side: int) -> None:
    """Sixteen filters are one panel, so nothing is read twice: but of 19 MB no prefetching follows 96 streams."""
    avx512 = eager(Machine(vector_bits=512, vector_registers=32, cores=1))
    function = _convolution("data", batch, 16, 112, 96, 1, 1)
    assert rules.propose(function, avx512)[0].parameters["side"] == (side,)


@pytest.mark.parametrize(("batch", "side"), [(1, TRANSPOSED), (4, AS_FOUND)], ids=["small", "large"])
def test_a_large_result_is_not_stored_across(batch: int, side: int) -> None:
    """Two tensors of 2 MB, one read and one written, in 48 streams each; of a quarter of that, caches take care."""
    gradient, weight = te.placeholder((batch, 112, 14, 14)), te.placeholder((112, 672, 1, 1))
    kept = te.placeholder((batch, 672, 14, 14), name="kept")
    window = Window(strides=(1, 1), pads=(0, 0), dilation=(1, 1))
    pulled = conv2d_data_gradient(gradient, weight, shape=kept.shape, window=window)
    added = te.compute(kept.shape, lambda *i: pulled[i] + kept[i], name="added")
    function = te.create_prim_func([gradient, weight, kept, added])
    avx512 = eager(Machine(vector_bits=512, vector_registers=32, cores=1))
    assert rules.propose(function, avx512)[0].parameters["side"] == (side,)
