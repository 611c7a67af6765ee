"""Convolutions and pools, forward and backward. NumPy computes them tap by tap, on views of the padded map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edgetrain._tvm import te, tirx, topi
from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.pooling import avg_pool2d_gradient, max_pool2d_gradient, max_pool2d_winner
from edgetrain.graph.gradients.window import Window
from tests.edgetrain.compiler.kernel_case import Array, KernelCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A convolution or a pool. The map is square unless it has one row."""

    batch: int
    channels: int
    size: tuple[int, int]
    filters: int = 1
    taps: tuple[int, int] = (3, 3)
    stride: int = 1
    pads: tuple[int, int] = (1, 1)
    dilation: int = 1
    groups: int = 1

    @property
    def window(self) -> Window:
        return Window(
            strides=(self.stride, self.stride),
            pads=self.pads,
            dilation=(self.dilation, self.dilation),
            groups=self.groups,
        )

    @property
    def outputs(self) -> tuple[int, ...]:
        spans = [(t - 1) * self.dilation + 1 for t in self.taps]
        sizes = zip(self.size, self.pads, spans, strict=True)
        return tuple((n + 2 * p - span) // self.stride + 1 for n, p, span in sizes)

    @property
    def data(self) -> tuple[int, ...]:
        return (self.batch, self.channels, *self.size)

    @property
    def weight(self) -> tuple[int, ...]:
        return (self.filters, self.channels // self.groups, *self.taps)

    @property
    def result(self) -> tuple[int, ...]:
        return (self.batch, self.filters, *self.outputs)

    @property
    def pooled(self) -> tuple[int, ...]:
        return (self.batch, self.channels, *self.outputs)

    def padded(self, data: Array | None, value: float = 0.0) -> tuple[Array, Array]:
        """The map with its padding, and the part of it that is the map."""
        heights, widths = ((p, p + n) for p, n in zip(self.pads, self.size, strict=True))
        whole = np.full((*self.data[:2], *(n + 2 * p for n, p in zip(self.size, self.pads, strict=True))), value)
        inside = whole[:, :, slice(*heights), slice(*widths)]
        inside[...] = 0.0 if data is None else data
        return whole, inside

    def seen(self, whole: Array, r: int, s: int) -> Array:
        """What tap (r, s) sees at every output, a view."""
        places = zip((r, s), self.outputs, strict=True)
        starts = [(tap * self.dilation, tap * self.dilation + self.stride * (count - 1) + 1) for tap, count in places]
        return whole[:, :, slice(*starts[0], self.stride), slice(*starts[1], self.stride)]


def _each_tap(g: Geometry) -> Iterator[tuple[int, int]]:
    return ((r, s) for r in range(g.taps[0]) for s in range(g.taps[1]))


def _grouped(array: Array, axis: int, groups: int) -> Array:
    """With an axis of the groups before the one that they are part of."""
    shape = array.shape
    return array.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _forward(g: Geometry, x: Array, w: Array) -> Array:
    whole, _ = g.padded(x)
    total = np.zeros((g.batch, g.groups, g.filters // g.groups, *g.outputs))
    for r, s in _each_tap(g):
        seen, weight = _grouped(g.seen(whole, r, s), 1, g.groups), _grouped(w[:, :, r, s], 0, g.groups)
        total += np.einsum("ngcyx,gfc->ngfyx", seen, weight)
    return total.reshape(g.result)


def _data_gradient(g: Geometry, dy: Array, w: Array) -> Array:
    whole, inside = g.padded(None)
    for r, s in _each_tap(g):
        gradient, weight = _grouped(dy, 1, g.groups), _grouped(w[:, :, r, s], 0, g.groups)
        pulled = np.einsum("ngfyx,gfc->ngcyx", gradient, weight)
        seen = g.seen(whole, r, s)
        seen += pulled.reshape(seen.shape)
    return inside


def _weight_gradient(g: Geometry, x: Array, dy: Array) -> Array:
    whole, _ = g.padded(x)
    result = np.zeros(g.weight)
    for r, s in _each_tap(g):
        seen, gradient = _grouped(g.seen(whole, r, s), 1, g.groups), _grouped(dy, 1, g.groups)
        result[:, :, r, s] = np.einsum("ngcyx,ngfyx->gfc", seen, gradient).reshape(g.weight[:2])
    return result


def _convolved(g: Geometry, x: Any, w: Any) -> Any:
    return topi.nn.group_conv2d_nchw(x, w, g.stride, g.pads, g.dilation, g.groups)


def _convolution(name: str, g: Geometry, *rules: str) -> list[KernelCase]:
    """Forward, data gradient and weight gradient; `rules` are those of vector targets and of scalar ones."""
    parts = {
        "forward": ((g.data, g.weight), partial(_convolved, g), partial(_forward, g)),
        "data gradient": (
            (g.result, g.weight),
            partial(conv2d_data_gradient, shape=g.data, window=g.window),
            partial(_data_gradient, g),
        ),
        "weight gradient": (
            (g.data, g.result),
            partial(conv2d_weight_gradient, shape=g.weight, window=g.window),
            partial(_weight_gradient, g),
        ),
    }
    vector_rule, scalar_rule = rules
    return [
        KernelCase(
            name=f"{name}, {part}",
            compute=compute,
            inputs=inputs,
            expected=expected,
            vector_rule=vector_rule,
            scalar_rule=scalar_rule,
        )
        for part, (inputs, compute, expected) in parts.items()
    ]


def _convolutions() -> Iterator[KernelCase]:
    kinds: dict[str, dict[str, Any]] = {
        "3 x 3": {},
        "stride 2": {"stride": 2},
        "1 x 1": {"taps": (1, 1), "pads": (0, 0)},
        "dilated": {"dilation": 2, "pads": (2, 2)},
        "in groups": {"groups": 2},
    }
    for name, options in kinds.items():
        groups = options.get("groups", 1)
        shapes = {
            "divides": Geometry(batch=2, channels=8, size=(8, 8), filters=8, **options),
            "prime": Geometry(batch=1, channels=5 * groups, size=(11, 11), filters=7 * groups, **options),
        }
        rules = ("packed-product", "register-tile") if groups == 1 else ("generic", "register-tile")
        for size in ("divides", "prime") if name in ("3 x 3", "stride 2") else ("prime",):
            yield from _convolution(f"convolution {name}, {size}", shapes[size], *rules)
    shape = Geometry(batch=2, channels=5, size=(1, 29), filters=7, taps=(1, 5), pads=(0, 2))
    yield from _convolution("convolution of a row, prime", shape, "packed-product", "register-tile")


def _clipped_gradients() -> Iterator[KernelCase]:
    """A data gradient with the gradient of the clip before it; in one size vectors run over channels."""
    for size, (batch, channels, extent, filters) in {"divides": (2, 32, 6, 16), "prime": (2, 31, 7, 13)}.items():
        g = Geometry(batch=batch, channels=channels, size=(extent, extent), filters=filters, taps=(1, 1), pads=(0, 0))

        def compute(dy: Any, w: Any, y: Any, g: Geometry = g) -> Any:
            gradient = conv2d_data_gradient(dy, w, shape=g.data, window=g.window)
            zero, one = np.float32(0.0), np.float32(1.0)
            return te.compute(
                g.data, lambda *i: tirx.Select(tirx.all(y[i] > zero, y[i] < one), gradient[i], zero), name="clipped"
            )

        def expected(dy: Array, w: Array, y: Array, g: Geometry = g) -> Array:
            return np.where((y > 0) & (y < 1), _data_gradient(g, dy, w), 0.0)

        yield KernelCase(
            name=f"convolution data gradient and clip, {size}",
            compute=compute,
            inputs=(g.result, g.weight, g.data),
            expected=expected,
            vector_rule="packed-product",
            scalar_rule="register-tile",
        )


def _winograd() -> Iterator[KernelCase]:
    for size, (channels, extent, filters) in {"divides": (32, 12, 32), "prime": (29, 11, 31)}.items():
        shape = Geometry(batch=2, channels=channels, size=(extent, extent), filters=filters)
        name = f"large convolution, {size}"
        yield from _convolution(name, shape, "winograd", "register-tile")[:2]
        yield _convolution(name, shape, "winograd-weights", "register-tile")[2]


def _channelwise() -> Iterator[KernelCase]:
    for size, (batch, channels, extent) in {"divides": (2, 4, 16), "prime": (1, 3, 19)}.items():
        for taps, stride in ((3, 1), (5, 2)):
            shape = Geometry(
                batch=batch,
                channels=channels,
                size=(extent, extent),
                filters=channels,
                taps=(taps, taps),
                stride=stride,
                pads=(taps // 2, taps // 2),
                groups=channels,
            )
            name = f"depthwise {taps} x {taps} stride {stride}, {size}"
            yield from _convolution(name, shape, "channelwise", "register-tile")


def _max_pool(g: Geometry, x: Array) -> Array:
    whole, _ = g.padded(x, -np.inf)
    return np.asarray(np.max([g.seen(whole, r, s) for r, s in _each_tap(g)], axis=0))


def _winners(g: Geometry, x: Array, y: Array) -> Array:
    whole, _ = g.padded(x, -np.inf)
    return np.asarray(np.argmax([g.seen(whole, r, s) == y for r, s in _each_tap(g)], axis=0), np.int8)


def _max_pool_gradient(g: Geometry, winners: Array, dy: Array) -> Array:
    whole, inside = g.padded(None)
    for number, (r, s) in enumerate(_each_tap(g)):
        seen = g.seen(whole, r, s)
        seen += np.where(winners == number, dy, 0.0)
    return inside


def _counts(g: Geometry) -> Array:
    whole, inside = g.padded(None)
    inside[...] = 1.0
    return np.asarray(np.sum([g.seen(whole, r, s) for r, s in _each_tap(g)], axis=0))


def _average_pool(g: Geometry, x: Array) -> Array:
    whole, _ = g.padded(x)
    return np.asarray(np.sum([g.seen(whole, r, s) for r, s in _each_tap(g)], axis=0) / _counts(g))


def _average_pool_gradient(g: Geometry, dy: Array) -> Array:
    whole, inside = g.padded(None)
    for r, s in _each_tap(g):
        seen = g.seen(whole, r, s)
        seen += dy / _counts(g)
    return inside


def _pool(g: Geometry, kind: str, x: Any) -> Any:
    pads = (*g.pads, *g.pads)
    return topi.nn.pool2d(x, g.taps, (g.stride,) * 2, (1, 1), pads, kind, count_include_pad=False)


def _pools() -> Iterator[KernelCase]:
    shapes = {
        "divides": Geometry(batch=2, channels=4, size=(16, 16), taps=(2, 2), stride=2, pads=(0, 0)),
        "prime": Geometry(batch=1, channels=3, size=(13, 13), taps=(3, 3), stride=2),
    }
    for size, g in shapes.items():

        def with_pooled(random: np.random.Generator, g: Geometry = g) -> list[Array]:
            x = random.standard_normal(g.data).astype(np.float32)
            return [x, _max_pool(g, x).astype(np.float32)]

        def with_winners(random: np.random.Generator, g: Geometry = g) -> list[Array]:
            winners = random.integers(0, g.taps[0] * g.taps[1], g.pooled).astype(np.int8)
            return [winners, random.standard_normal(g.pooled).astype(np.float32)]

        settings: dict[str, Any] = {"shape": g.data, "kernel": g.taps, "window": g.window}
        average = {**settings, "end_pads": g.pads, "count_padding": False}
        parts: dict[str, dict[str, Any]] = {
            "maximum": {"compute": partial(_pool, g, "max"), "inputs": (g.data,), "expected": partial(_max_pool, g)},
            "winner": {
                "compute": partial(max_pool2d_winner, kernel=g.taps, window=g.window),
                "inputs": (g.data, g.pooled),
                "expected": partial(_winners, g),
                "draw": with_pooled,
            },
            "maximum gradient": {
                "compute": partial(max_pool2d_gradient, **settings),
                "inputs": (g.pooled, g.pooled),
                "dtypes": ("int8", "float32"),
                "expected": partial(_max_pool_gradient, g),
                "draw": with_winners,
            },
            "average": {
                "compute": partial(_pool, g, "avg"),
                "inputs": (g.data,),
                "expected": partial(_average_pool, g),
            },
            "average gradient": {
                "compute": partial(avg_pool2d_gradient, **average),
                "inputs": (g.pooled,),
                "expected": partial(_average_pool_gradient, g),
            },
        }
        for part, options in parts.items():
            yield KernelCase(name=f"pool, {part}, {size}", vector_rule="pooling", **options)


def window_cases() -> Iterator[KernelCase]:
    for family in (_convolutions, _clipped_gradients, _winograd, _channelwise, _pools):
        yield from family()
