"""Scheduled kernels as an emulated aarch64 computes them, against NumPy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgetrain._tvm import te, topi
from edgetrain.graph.extract import Extracted, Kernel
from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph
from edgetrain.program.lower import CodegenTarget, Lowered, compile_kernels, lower
from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.channelwise import Channelwise
from edgetrain_tuner.rules.pooling import Pooling
from edgetrain_tuner.rules.winograd import Winograd
from tests.edgetrain_tuner.rules.unscheduled import written

pytestmark = pytest.mark.compile

NEON = Features(vector_bits=128, vector_registers=32, cores=1)
AARCH64 = CodegenTarget(triple="aarch64-unknown-linux-gnu", cpu="cortex-a72", features=("+neon",))
BATCH, CHANNELS, SIZE, TAPS, PAD = 2, 6, 19, 5, 2

Array = npt.NDArray[np.float32]

# Reads the inputs one after the other, calls the kernel, writes its result.
MAIN_C = """
#include <stdio.h>
int kernel({parameters});
{buffers}
int main(void) {{
  {reads}
  if (kernel({arguments}) != 0) return 2;
  return fwrite({result}, 1, sizeof {result}, stdout) == sizeof {result} ? 0 : 3;
}}
"""


def _outputs(stride: int) -> int:
    return (SIZE + 2 * PAD - TAPS) // stride + 1


def _function(part: str, stride: int) -> Any:
    window = Window(strides=(stride, stride), pads=(PAD, PAD), dilation=(1, 1), groups=CHANNELS)
    x = te.placeholder((BATCH, CHANNELS, SIZE, SIZE), name="x")
    w = te.placeholder((CHANNELS, 1, TAPS, TAPS), name="w")
    g = te.placeholder((BATCH, CHANNELS, _outputs(stride), _outputs(stride)), name="g")
    if part == "forward":
        return te.create_prim_func([x, w, topi.nn.group_conv2d_nchw(x, w, stride, PAD, 1, CHANNELS)])
    if part == "data":
        return te.create_prim_func([g, w, conv2d_data_gradient(g, w, shape=tuple(map(int, x.shape)), window=window)])
    return te.create_prim_func([x, g, conv2d_weight_gradient(x, g, shape=tuple(map(int, w.shape)), window=window)])


def _expected(part: str, stride: int, first: Array, second: Array) -> Array:
    """Tap by tap: each one multiplies a shifted, strided view of the padded map."""
    outputs = _outputs(stride)
    padded = np.zeros((BATCH, CHANNELS, SIZE + 2 * PAD, SIZE + 2 * PAD))
    inside = (..., slice(PAD, PAD + SIZE), slice(PAD, PAD + SIZE))
    result = {
        "forward": np.zeros((BATCH, CHANNELS, outputs, outputs)),
        "data": padded,
        "weight": np.zeros((CHANNELS, 1, TAPS, TAPS)),
    }[part]
    if part != "data":
        padded[inside] = first
    for r in range(TAPS):
        for s in range(TAPS):
            seen = (..., slice(r, r + stride * outputs, stride), slice(s, s + stride * outputs, stride))
            if part == "forward":
                result += padded[seen] * second[:, 0, r, s, None, None]
            elif part == "data":
                result[seen] += first * second[:, 0, r, s, None, None]
            else:
                result[:, 0, r, s] = (padded[seen] * second).sum((0, 2, 3))
    return (result[inside] if part == "data" else result).astype(np.float32)


def _shapes(function: Any) -> list[tuple[int, ...]]:
    return [tuple(int(extent) for extent in parameter.ty.shape) for parameter in function.params]


def _lowered(function: Any) -> Lowered:
    *inputs, output = _shapes(function)
    names = [*(f"input{n}" for n in range(len(inputs))), "output"]
    tensors = {
        name: Tensor(name=name, shape=shape, dtype="float32", role=Role.OUTPUT if name == "output" else Role.INPUT)
        for name, shape in zip(names, (*inputs, output), strict=True)
    }
    op = Op(name="op", kernel="kernel", reads=tuple(names[:-1]), writes=("output",), phase=Phase.FORWARD)
    kernel = Kernel(symbol="kernel", function=function, in_place=False)
    graph = TrainGraph(name="g", tensors=tensors, functions={"step": (op,)})
    return lower(Extracted(graph=graph, kernels=(kernel,), initial={}), NEON)


def _main_c(sizes: list[int], scratch: tuple[int, ...]) -> str:
    """`sizes` in elements, the result's last."""
    names = [f"b{n}" for n in range(len(sizes) + len(scratch))]
    counts = [*sizes, *(-(-nbytes // 4) for nbytes in scratch)]
    inputs, result = names[: len(sizes) - 1], names[len(sizes) - 1]
    return MAIN_C.format(
        parameters=", ".join("float*" for _ in names),
        buffers="\n".join(
            f"static _Alignas(64) float {name}[{count}];" for name, count in zip(names, counts, strict=True)
        ),
        reads=" ".join(f"if (fread({name}, 1, sizeof {name}, stdin) != sizeof {name}) return 1;" for name in inputs),
        arguments=", ".join(names),
        result=result,
    )


def _emulated(function: Any, arrays: list[Array], folder: Path) -> Array:
    """What the kernel makes of the arrays, scheduled without a search, on an emulated processor."""
    qemu = shutil.which("qemu-aarch64-static")
    if qemu is None:
        pytest.skip("needs qemu-aarch64-static: apt-get install qemu-user-static")
    lowered = _lowered(function)
    compile_kernels(lowered.kernels, AARCH64, folder / "kernel.o")
    shapes = _shapes(function)
    scratch = lowered.graph.functions["step"][0].scratch_bytes
    (folder / "main.c").write_text(_main_c([int(np.prod(shape)) for shape in shapes], scratch))
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static", "-O1"]
    subprocess.run([*zig, "main.c", "kernel.o", "-o", "main", "-lm"], cwd=folder, check=True)
    given = b"".join(array.tobytes() for array in arrays)
    done = subprocess.run([qemu, "./main"], cwd=folder, input=given, capture_output=True)
    assert done.returncode == 0, done.stderr
    return np.frombuffer(done.stdout, np.float32).reshape(shapes[-1])


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("part", ["forward", "data", "weight"])
def test_a_depthwise_convolution_and_its_gradients(part: str, stride: int, tmp_path: Path) -> None:
    function = _function(part, stride)
    assert written(function, Channelwise(), NEON) is not None
    random = np.random.default_rng(5)
    first, second = (random.standard_normal(shape).astype(np.float32) for shape in _shapes(function)[:-1])
    expected = _expected(part, stride, first, second)
    computed = _emulated(function, [first, second], tmp_path)
    np.testing.assert_allclose(computed, expected, rtol=0, atol=2e-6 * TAPS * np.abs(expected).max())


def test_a_pool_whose_padding_is_cut_off(tmp_path: Path) -> None:
    x = te.placeholder((BATCH, CHANNELS, SIZE, SIZE), name="x")
    function = te.create_prim_func([x, topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")])
    assert written(function, Pooling(), NEON) is not None
    data = np.random.default_rng(6).standard_normal(_shapes(function)[0]).astype(np.float32)
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(_emulated(function, [data], tmp_path), windows.max((-2, -1)))


def test_a_softmax_whose_exponentials_are_arithmetic(tmp_path: Path) -> None:
    x = te.placeholder((37, 61), name="x")
    function = te.create_prim_func([x, topi.nn.softmax(x)])
    data = np.random.default_rng(7).standard_normal((37, 61)).astype(np.float32) * np.float32(30)
    exact = np.exp((data - data.max(1, keepdims=True)).astype(np.float64))
    exact /= exact.sum(1, keepdims=True)
    np.testing.assert_allclose(_emulated(function, [data], tmp_path), exact, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("part", ["forward", "data"])
def test_a_convolution_by_winograds_algorithm(part: str, tmp_path: Path) -> None:
    batch, channels, size, filters = 2, 40, 27, 48
    image, weight = (te.placeholder((batch, channels, size, size)), te.placeholder((filters, channels, 3, 3)))
    if part == "forward":
        function = te.create_prim_func([image, weight, topi.nn.conv2d_nchw(image, weight, 1, 1, 1)])
    else:
        weight = te.placeholder((channels, filters, 3, 3))
        window = Window(strides=(1, 1), pads=(1, 1), dilation=(1, 1))
        shape = (batch, filters, size, size)
        function = te.create_prim_func([image, weight, conv2d_data_gradient(image, weight, shape=shape, window=window)])
    assert written(function, Winograd(), NEON) is not None
    random = np.random.default_rng(5)
    first, second = (random.standard_normal(shape).astype(np.float32) for shape in _shapes(function)[:-1])
    taps = second if part == "forward" else second.swapaxes(0, 1)[:, :, ::-1, ::-1]
    padded = np.pad(first.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = sum(
        np.einsum("ncyx,fc->nfyx", padded[:, :, r : r + size, s : s + size], taps[:, :, r, s])
        for r in range(3)
        for s in range(3)
    )
    computed = _emulated(function, [first, second], tmp_path)
    np.testing.assert_allclose(computed, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
