"""Tiles cover all positions and fit the registers; what they copy stays small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tvm import te, topi

from edgetrain.graph.gradients.convolution import conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.product.blocking import FLOAT_BYTES
from edgetrain_tuner.rules.window.form import ChannelWindow, find_window
from edgetrain_tuner.rules.window.sliding import Sliding
from edgetrain_tuner.rules.window.tiling import choose_tiling, plane_elements

MACHINES = {
    "AVX-512": Machine(vector_bits=512, vector_registers=32, cores=2),
    "AVX2": Machine(vector_bits=256, vector_registers=16, cores=4),
    "NEON": Machine(vector_bits=128, vector_registers=32, cores=4),
}
# Channels, size, taps, stride.
GEOMETRIES = ((96, 112, 3, 2), (144, 56, 3, 1), (24, 31, 5, 1), (672, 14, 5, 2), (1152, 7, 5, 1), (8, 224, 7, 3))


def _window(part: str, geometry: Sequence[int]) -> ChannelWindow:
    channels, size, taps, stride = geometry
    outputs = (size + taps // 2 * 2 - taps) // stride + 1
    x = te.placeholder((2, channels, size, size), name="x")
    w = te.placeholder((channels, 1, taps, taps), name="w")
    g = te.placeholder((2, channels, outputs, outputs), name="g")
    inputs: tuple[Any, Any] = (x, w)
    if part == "forward":
        result = topi.nn.group_conv2d_nchw(x, w, stride, taps // 2, 1, channels)
    else:
        inputs = (x, g)
        window = Window(strides=(stride, stride), pads=(taps // 2, taps // 2), dilation=(1, 1), groups=channels)
        result = conv2d_weight_gradient(x, g, shape=(channels, 1, taps, taps), window=window)
    contraction = find(te.create_prim_func([*inputs, result]))
    assert contraction is not None
    found = find_window(contraction)
    assert found is not None
    return found


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("part", ["forward", "weight"])
def test_tiles_cover_everything_and_fit(part: str, geometry: Sequence[int], machine: Machine) -> None:
    window = _window(part, geometry)
    tiling = choose_tiling(window, machine)
    assert tiling is not None
    tile, rows, columns = tiling.tile, window.rows, window.columns
    assert (tiling.bands - 1) * tiling.band_tiles < tiling.row_tiles <= tiling.bands * tiling.band_tiles
    assert (tiling.row_tiles - 1) * tile.rows < rows.position.extent <= tiling.row_tiles * tile.rows
    assert (tiling.column_tiles - 1) * tile.width < columns.position.extent <= tiling.width
    sums = tile.rows * tile.vectors if window.slides_over_result else tile.tap_rows * columns.tap.extent + tile.rows
    assert sums < machine.vector_registers


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("part", ["forward", "weight"])
def test_a_plane_is_small_beside_its_tensor(part: str, geometry: Sequence[int]) -> None:
    window = _window(part, geometry)
    tiling = choose_tiling(window, MACHINES["AVX2"])
    assert tiling is not None
    channels, size, *_ = geometry
    most = min(32 * 1024, max(8 * 1024, 2 * channels * size * size * FLOAT_BYTES // 8))
    positions = tiling.band_tiles * tiling.tile.rows
    plane_bytes = FLOAT_BYTES * plane_elements(window.rows, window.columns, positions, tiling.width)
    assert plane_bytes <= most or tiling.band_tiles == 1


@pytest.mark.parametrize("taps", [3, 5])
def test_rows_of_padding_are_not_multiplied(taps: int) -> None:
    window = _window("forward", (1152, 7, taps, 1))
    tiling = choose_tiling(window, MACHINES["AVX-512"])
    assert tiling is not None
    product_at = Sliding.over(window, tiling).tap_products((0, 0), range(taps))
    pairs = [(row, row + tap - taps // 2) for row in range(7) for tap in range(taps)]
    assert len(product_at) == taps * sum(0 <= read < 7 for _, read in pairs)


def test_small_planes_are_copied_ahead() -> None:
    small, large = (_window("forward", (96, size, 3, 1)) for size in (7, 112))
    counts = [tiling.planes for w in (small, large) if (tiling := choose_tiling(w, MACHINES["AVX-512"]))]
    assert counts == [2, 1]
    weight = choose_tiling(_window("weight", (96, 7, 3, 1)), MACHINES["AVX-512"])
    assert weight is not None
    assert weight.planes == 1
