"""Blocks that are transposed in registers: every element in its place, for any number of rows and lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from edgetrain.graph.gradients.convolution import conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Contraction, find
from edgetrain_tuner.rules.loops import Loops
from edgetrain_tuner.rules.product.blocking import choose_blocking
from edgetrain_tuner.rules.product.tiles import Tile
from edgetrain_tuner.rules.product.transpose import padded_rows, transpose_block, transposes_panel, transposes_sums
from edgetrain_tuner.rules.product.vector_side import AS_FOUND, TRANSPOSED, vector_sides

AVX512 = Machine(vector_bits=512, vector_registers=32, cores=1)


@pytest.mark.compile
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("padding", [0, 1, 3])
@pytest.mark.parametrize("part", [1, 2, 4])
def test_every_element_is_in_its_column(part: int, padding: int, lanes: int) -> None:
    rows = max(1, lanes // part - padding)
    loops, count = Loops("int32"), padded_rows(rows)
    source = tirx.decl_buffer((rows, lanes), "float32", "source")
    target = tirx.decl_buffer((lanes, count), "float32", "target")

    def read(row: int, column: Any) -> Any:
        return source[loops.number(row), column]

    def write(column: int, row: Any, value: Any) -> Any:
        return tirx.BufferStore(target, value, [loops.number(column), row])

    body = transpose_block(loops, rows, lanes, read, write)
    function = tirx.PrimFunc([source, target], body).with_attr("global_symbol", "transposed")
    given = np.arange(1, rows * lanes + 1, dtype=np.float32).reshape(rows, lanes)
    arrays = [tvm.runtime.tensor(array) for array in (given, np.full((lanes, count), np.nan, np.float32))]
    tvm.compile(tvm.IRModule({"transposed": function}), target="llvm")["transposed"](*arrays)
    expected = np.zeros((lanes, count), np.float32)
    expected[:, :rows] = given.T
    np.testing.assert_array_equal(arrays[1].numpy(), expected)


def _weight_gradient(channels: int, size: int, filters: int, taps: int, stride: int) -> Contraction:
    pad = taps // 2
    outputs = (size + 2 * pad - taps) // stride + 1
    data, gradient = te.placeholder((2, channels, size, size)), te.placeholder((2, filters, outputs, outputs))
    window = Window(strides=(stride, stride), pads=(pad, pad), dilation=(1, 1))
    result = conv2d_weight_gradient(data, gradient, shape=(filters, channels, taps, taps), window=window)
    found = find(te.create_prim_func([data, gradient, result]))
    assert found is not None
    return found


def test_a_gradient_that_lies_along_the_sum_is_transposed_into_panels() -> None:
    side = vector_sides(_weight_gradient(3, 64, 32, 7, 2))[TRANSPOSED]
    blocking = choose_blocking(side, AVX512)
    assert transposes_panel(side.contraction, blocking.tile, blocking.depth_shape, AVX512)


def test_an_image_with_padding_is_not_transposed() -> None:
    side = vector_sides(_weight_gradient(3, 64, 32, 7, 2))[AS_FOUND]
    blocking = choose_blocking(side, AVX512)
    assert not transposes_panel(side.contraction, blocking.tile, blocking.depth_shape, AVX512)


# 40 elements follow each other: 24 and 16, 20 and 20, but 30 and 10.
@pytest.mark.parametrize(("run", "is_transposed"), [(24, True), (20, True), (30, False), (15, False)])
def test_a_run_is_at_least_a_vector_in_every_part(run: int, is_transposed: bool) -> None:
    tile = Tile(row_shape=(4,), vectors=1, lanes=16, shape=(16,))
    assert transposes_panel(_weight_gradient(16, 40, 32, 1, 1), tile, (1, 1, run), AVX512) == is_transposed


@pytest.mark.parametrize(("row_shape", "is_transposed"), [((1, 1, 7), True), ((4, 1, 1), False), ((2, 2, 2), False)])
def test_sums_are_transposed_where_rows_follow_each_other_in_memory(
    row_shape: tuple[int, int, int], is_transposed: bool
) -> None:
    data, weight = te.placeholder((4, 24, 14, 14)), te.placeholder((32, 24, 1, 1))
    k = te.reduce_axis((0, 24), "k")
    result = te.compute(
        (4, 32, 14, 14), lambda n, f, y, x: te.sum(data[n, k, y, x] * weight[f, k, 0, 0], axis=k), name="result"
    )
    found = find(te.create_prim_func([data, weight, result]))
    assert found is not None
    tile = Tile(row_shape=row_shape, vectors=2, lanes=16, shape=(32,))
    assert transposes_sums(found.transposed(), tile, AVX512) == is_transposed
