"""The kernels that `benchmarks/kernels.py` times: shapes, and what computes them here and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edgetrain._tvm import te, tirx, topi
from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.matmul import matmul_nn, matmul_nt, matmul_tn
from edgetrain.graph.gradients.pooling import avg_pool2d_gradient
from edgetrain.graph.gradients.window import Window

try:
    import torch
except ImportError:
    torch = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """`groups` is 1, or as many as channels. The map is square, the padding keeps its size at stride 1."""

    batch: int
    channels: int
    size: int
    filters: int
    taps: int
    stride: int
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.taps // 2

    @property
    def outputs(self) -> int:
        return (self.size + 2 * self.padding - self.taps) // self.stride + 1

    @property
    def data_shape(self) -> tuple[int, ...]:
        return (self.batch, self.channels, self.size, self.size)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.filters, self.channels // self.groups, self.taps, self.taps)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.batch, self.filters, self.outputs, self.outputs)

    @property
    def operations(self) -> int:
        return 2 * int(np.prod(self.output_shape)) * int(np.prod(self.weight_shape[1:]))

    @property
    def window(self) -> Window:
        return Window(strides=(self.stride,) * 2, pads=(self.padding,) * 2, dilation=(1, 1), groups=self.groups)

    def __str__(self) -> str:
        filters = "" if self.groups > 1 else f" to {self.filters}"
        return f"{self.batch}x{self.channels}x{self.size}²{filters} taps {self.taps} stride {self.stride}"


def _dense(batch: int, channels: int, size: int, filters: int, taps: int, stride: int) -> Convolution:
    return Convolution(batch=batch, channels=channels, size=size, filters=filters, taps=taps, stride=stride)


def _depthwise(batch: int, channels: int, size: int, taps: int, stride: int) -> Convolution:
    return Convolution(
        batch=batch, channels=channels, size=size, filters=channels, taps=taps, stride=stride, groups=channels
    )


CONVOLUTIONS = (
    _dense(4, 3, 224, 64, 7, 2),  # ResNet-18
    _dense(4, 64, 56, 64, 3, 1),
    _dense(4, 64, 56, 128, 3, 2),
    _dense(4, 64, 56, 128, 1, 2),
    _dense(4, 128, 28, 128, 3, 1),
    _dense(4, 256, 14, 256, 3, 1),
    _dense(4, 512, 7, 512, 3, 1),
    _dense(4, 3, 224, 32, 3, 2),  # EfficientNet-Lite0 and MobileNetV2
    _dense(4, 16, 112, 96, 1, 1),
    _dense(4, 144, 56, 24, 1, 1),
    _dense(4, 40, 28, 240, 1, 1),
    _dense(4, 480, 14, 80, 1, 1),
    _dense(4, 320, 7, 1280, 1, 1),
)
DEPTHWISE = (
    _depthwise(8, 32, 112, 3, 1),  # EfficientNet-Lite0
    _depthwise(8, 96, 112, 3, 2),
    _depthwise(8, 144, 56, 3, 1),
    _depthwise(8, 144, 56, 5, 2),
    _depthwise(8, 240, 28, 5, 1),
    _depthwise(8, 672, 14, 5, 1),
    _depthwise(8, 672, 14, 5, 2),
    _depthwise(8, 1152, 7, 5, 1),
    _depthwise(8, 576, 14, 3, 1),  # MobileNetV2
    _depthwise(8, 960, 7, 3, 1),
)
POOLS = (
    _depthwise(4, 64, 112, 3, 2),  # ResNet-18
    _depthwise(4, 192, 27, 3, 2),  # odd sizes, as in Inception
    _depthwise(4, 96, 28, 3, 1),
)
PRODUCTS = (  # rows, columns, depth: MiniLM-L6 with 8 x 128 tokens, and a classifier
    (1024, 384, 384),
    (1024, 1536, 384),
    (1024, 384, 1536),
    (32, 1000, 1280),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel: how to make it, from what, and who else computes the same."""

    family: str
    kernel: str
    shape: str
    operations: int
    function: Callable[[], Any]  # a PrimFunc
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    peer: Callable[..., Any]  # of the inputs as torch tensors


def _function(compute: Callable[..., Any], shapes: Sequence[tuple[int, ...]]) -> Any:
    inputs = [te.placeholder(shape, name=f"input{n}") for n, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, compute(*inputs)])


def _forward(c: Convolution) -> Callable[..., Any]:
    if c.groups == 1:
        return lambda x, w: topi.nn.conv2d_nchw(x, w, c.stride, c.padding, 1)
    return lambda x, w: topi.nn.group_conv2d_nchw(x, w, c.stride, c.padding, 1, c.groups)


def _torch_backward(c: Convolution, mask: list[bool], dy: Any, x: Any, w: Any) -> Any:
    strides, pads = [c.stride] * 2, [c.padding] * 2
    return torch.ops.aten.convolution_backward(dy, x, w, None, strides, pads, [1, 1], False, [0, 0], c.groups, mask)


def convolution_cases(family: str, c: Convolution) -> Iterator[Case]:
    x, w, y = c.data_shape, c.weight_shape, c.output_shape

    def case(kernel: str, inputs: tuple[Any, ...], output: Any, compute: Callable[..., Any], peer: Any) -> Case:
        return Case(
            family=f"{family} {kernel}",
            kernel=f"{family} {kernel}",
            shape=str(c),
            operations=c.operations,
            function=partial(_function, compute, inputs),
            inputs=inputs,
            output=output,
            peer=peer,
        )

    yield case(
        "forward",
        (x, w),
        y,
        _forward(c),
        lambda x, w: torch.nn.functional.conv2d(x, w, stride=c.stride, padding=c.padding, groups=c.groups),
    )
    # Shapes alone matter to PyTorch where a gradient does not depend on a value.
    empty_x, empty_w = (torch.zeros(shape) for shape in (x, w))
    if c.channels > 3:  # nobody asks for the gradient of an image
        yield case(
            "data gradient",
            (y, w),
            x,
            lambda dy, w: conv2d_data_gradient(dy, w, shape=x, window=c.window),
            lambda dy, w: _torch_backward(c, [True, False, False], dy, empty_x, w)[0],
        )
    yield case(
        "weight gradient",
        (x, y),
        w,
        lambda x, dy: conv2d_weight_gradient(x, dy, shape=w, window=c.window),
        lambda x, dy: _torch_backward(c, [False, True, False], dy, x, empty_w)[1],
    )


def product_cases(rows: int, columns: int, depth: int) -> Iterator[Case]:
    kinds: Mapping[str, tuple[Any, Callable[[Any, Any], Any]]] = {
        "nn": (matmul_nn, lambda a, b: a @ b),
        "nt": (matmul_nt, lambda a, b: a @ b.T),
        "tn": (matmul_tn, lambda a, b: a.T @ b),
    }
    for kind, (compute, peer) in kinds.items():
        inputs = (
            (rows, depth) if kind[0] == "n" else (depth, rows),
            (depth, columns) if kind[1] == "n" else (columns, depth),
        )
        yield Case(
            family="matmul",
            kernel=f"matmul {kind}",
            shape=f"{rows}x{columns}x{depth}",
            operations=2 * rows * columns * depth,
            function=partial(_function, compute, inputs),
            inputs=inputs,
            output=(rows, columns),
            peer=peer,
        )


def _elementwise_case(kernel: str, shape: tuple[int, ...], compute: Callable[[Any], Any], peer: Any) -> Case:
    return Case(
        family=kernel,
        kernel=kernel,
        shape="x".join(map(str, shape)),
        operations=int(np.prod(shape)),
        function=partial(_function, compute, (shape,)),
        inputs=(shape,),
        output=shape,
        peer=peer,
    )


def row_cases() -> Iterator[Case]:
    """What works through rows or elements of MiniLM-L6; `operations` are elements."""
    rows, wide = (8, 12, 128, 128), (8, 128, 1536)
    yield _elementwise_case("softmax", rows, lambda x: topi.nn.softmax(x, -1), lambda x: torch.softmax(x, -1))
    half, root = np.float32(0.5), np.float32(np.sqrt(0.5))

    def gelu(x: Any) -> Any:
        return te.compute(x.shape, lambda *i: x[i] * half * (tirx.erf(x[i] * root) + np.float32(1.0)))

    yield _elementwise_case("gelu", wide, gelu, torch.nn.functional.gelu)
    yield _elementwise_case("exp", wide, topi.exp, torch.exp)
    yield _elementwise_case("tanh", wide, topi.tanh, torch.tanh)


def pool_cases(c: Convolution) -> Iterator[Case]:
    """Pools of the shapes that a convolution would have; `operations` are taps."""
    x, y = c.data_shape, c.output_shape
    taps, strides, pads = (c.taps,) * 2, (c.stride,) * 2, (c.padding,) * 2
    operations = int(np.prod(y)) * c.taps**2

    def case(kernel: str, given: tuple[int, ...], output: tuple[int, ...], compute: Any, peer: Any) -> Case:
        return Case(
            family="pool",
            kernel=kernel,
            shape=str(c),
            operations=operations,
            function=partial(_function, compute, (given,)),
            inputs=(given,),
            output=output,
            peer=peer,
        )

    yield case(
        "pool maximum",
        x,
        y,
        lambda x: topi.nn.pool2d(x, taps, strides, (1, 1), (*pads, *pads), "max"),
        lambda x: torch.nn.functional.max_pool2d(x, taps, strides, pads),
    )
    yield case(
        "pool average",
        x,
        y,
        lambda x: topi.nn.pool2d(x, taps, strides, (1, 1), (*pads, *pads), "avg", count_include_pad=True),
        lambda x: torch.nn.functional.avg_pool2d(x, taps, strides, pads),
    )
    empty = torch.zeros(x)
    yield case(
        "pool average gradient",
        y,
        x,
        lambda dy: avg_pool2d_gradient(dy, shape=x, kernel=taps, window=c.window, end_pads=pads, count_padding=True),
        lambda dy: torch.ops.aten.avg_pool2d_backward(dy, empty, taps, strides, pads, False, True, None),
    )


def all_cases() -> list[Case]:
    return [
        *(case for sizes in PRODUCTS for case in product_cases(*sizes)),
        *(case for c in CONVOLUTIONS for case in convolution_cases("convolution", c)),
        *(case for c in DEPTHWISE for case in convolution_cases("depthwise", c)),
        *(case for c in POOLS for case in pool_cases(c)),
        *row_cases(),
    ]
