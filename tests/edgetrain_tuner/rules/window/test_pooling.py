"""Written-out windows compute what the unscheduled kernels do, and say no to everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tvm import te, tirx, topi

from edgetrain.graph.gradients.pooling import avg_pool2d_gradient, max_pool2d_gradient, max_pool2d_winner
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.window.pooling import Pooling, find_pool
from edgetrain_tuner.schedule import ScheduleRefusedError
from tests.edgetrain_tuner.rules.unscheduled import assert_computes_the_same, written

pytestmark = pytest.mark.compile

MACHINE = Machine(vector_bits=256, vector_registers=16, cores=2)
SCALAR = Machine(vector_bits=32, vector_registers=16, cores=1)


@dataclass(frozen=True, kw_only=True)
class Geometry:
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def window(self) -> Window:
        return Window(strides=self.strides, pads=self.pads, dilation=self.dilation)

    @property
    def data_shape(self) -> tuple[int, ...]:
        return (2, 3, self.height, self.width)

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        sizes = (self.height, self.width)
        reaches = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        return (
            2,
            3,
            *((n + 2 * p - k) // s + 1 for n, p, k, s in zip(sizes, self.pads, reaches, self.strides, strict=True)),
        )


GEOMETRIES: Mapping[str, Geometry] = {
    "padded, stride 2": Geometry(height=32, width=48, kernel=(3, 3), strides=(2, 2), pads=(1, 1)),
    "padded, stride 2, prime": Geometry(height=13, width=37, kernel=(3, 3), strides=(2, 2), pads=(1, 1)),
    "plain": Geometry(height=16, width=16, kernel=(2, 2), strides=(2, 2)),
    "plain, one column left over": Geometry(height=9, width=11, kernel=(2, 2), strides=(2, 2)),
    "overlapping": Geometry(height=7, width=19, kernel=(3, 3), strides=(1, 1), pads=(1, 1)),
    "gaps": Geometry(height=11, width=23, kernel=(2, 2), strides=(3, 3)),
    "dilated": Geometry(height=12, width=21, kernel=(2, 3), strides=(1, 2), dilation=(2, 2)),
    "smaller than its padding": Geometry(height=3, width=2, kernel=(3, 3), strides=(2, 2), pads=(1, 1)),
    "one column": Geometry(height=9, width=1, kernel=(3, 1), strides=(2, 1), pads=(1, 0)),
}


def _placeholder(shape: tuple[int, ...], name: str, dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name=name)


def _forward(kind: str, g: Geometry) -> list[Any]:
    x = _placeholder(g.data_shape, "x")
    y = topi.nn.pool2d(x, g.kernel, g.strides, g.dilation, (*g.pads, *g.pads), kind, count_include_pad=False)
    return [x, y]


def _winner(g: Geometry) -> list[Any]:
    x, y = _placeholder(g.data_shape, "x"), _placeholder(g.pooled_shape, "y")
    return [x, y, max_pool2d_winner(x, y, kernel=g.kernel, window=g.window)]


def _gradient(g: Geometry) -> list[Any]:
    """With the gradient of a relu behind it, as in ResNet."""
    winners, dy = _placeholder(g.pooled_shape, "winners", "int8"), _placeholder(g.pooled_shape, "dy")
    y = _placeholder(g.data_shape, "y")
    pulled = max_pool2d_gradient(winners, dy, shape=g.data_shape, kernel=g.kernel, window=g.window)
    zero = tirx.const(0.0, "float32")
    return [winners, dy, y, te.compute(g.data_shape, lambda *i: tirx.Select(y[i] > zero, pulled[i], zero))]


def _average_gradient(g: Geometry) -> list[Any]:
    dy = _placeholder(g.pooled_shape, "dy")
    gradient = avg_pool2d_gradient(
        dy, shape=g.data_shape, kernel=g.kernel, window=g.window, end_pads=g.pads, count_padding=False
    )
    return [dy, gradient]


PARTS: Mapping[str, Callable[[Geometry], list[Any]]] = {
    "maximum": lambda g: _forward("max", g),
    "average": lambda g: _forward("avg", g),
    "winner": _winner,
    "gradient": _gradient,
    "average gradient": _average_gradient,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_pool_computes_what_the_unscheduled_one_does(part: str, geometry: str) -> None:
    function = te.create_prim_func(PARTS[part](GEOMETRIES[geometry]))
    assert_computes_the_same(function, Pooling(), MACHINE)


@pytest.mark.parametrize("part", PARTS)
def test_no_condition_is_left_inside_a_padded_pool(part: str) -> None:
    function = te.create_prim_func(PARTS[part](GEOMETRIES["padded, stride 2"]))
    text = written(function, Pooling(), MACHINE).script()
    assert "if_then_else" not in text
    assert "//" not in text.replace("plane // 3", "")


def test_rows_and_columns_are_cut_only_where_the_padding_begins() -> None:
    pool = find_pool(te.create_prim_func(_forward("max", GEOMETRIES["padded, stride 2"])), MACHINE)
    assert pool is not None
    assert [[(s.first, s.end) for s in cut.segments] for cut in pool.cut] == [[(0, 1), (1, 16)], [(0, 1), (1, 24)]]


def test_an_odd_row_ends_in_a_segment_of_fewer_phases() -> None:
    pool = find_pool(te.create_prim_func(_gradient(GEOMETRIES["plain, one column left over"])), MACHINE)
    assert pool is not None
    assert [len(segment.phases) for segment in pool.cut[-1].segments] == [2, 1]


def _matmul() -> list[Any]:
    a, b = _placeholder((8, 16), "a"), _placeholder((16, 8), "b")
    return [a, b, topi.matmul(a, b)]


def _row_sums() -> list[Any]:
    a = _placeholder((8, 16), "a")
    return [a, topi.sum(a, 1)]


def _large_window() -> list[Any]:
    return _forward("max", Geometry(height=64, width=64, kernel=(13, 13), strides=(1, 1), pads=(6, 6)))


@pytest.mark.parametrize("arguments", [_matmul, _row_sums, _large_window])
def test_other_kernels_are_left_to_other_rules(arguments: Callable[[], list[Any]]) -> None:
    assert written(te.create_prim_func(arguments()), Pooling(), MACHINE) is None


def test_scalar_targets_keep_the_short_code() -> None:
    assert written(te.create_prim_func(_forward("max", GEOMETRIES["plain"])), Pooling(), SCALAR) is None


def test_one_core_shares_no_planes() -> None:
    function = te.create_prim_func(_forward("max", GEOMETRIES["plain"]))
    single = Machine(vector_bits=256, vector_registers=16, cores=1)
    kernel = Kernel(function=function, contraction=find(function))
    with pytest.raises(ScheduleRefusedError, match="1 cores"):
        Pooling().check(kernel, single, {"parallel": (1,)})
