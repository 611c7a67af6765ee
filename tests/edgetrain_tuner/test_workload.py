"""The key of a kernel survives sizes, names and processes, and tells kernels apart that need other schedules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tvm import te, topi

from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.window import Window
from edgetrain_tuner.workload import workload_of

pytestmark = pytest.mark.compile


def _convolution(
    channels: int = 8,
    size: int = 14,
    filters: int = 12,
    taps: int = 3,
    stride: int = 1,
    *,
    part: str = "forward",
    name: str = "x",
    has_epilogue: bool = False,
) -> Any:
    pad = taps // 2
    outputs = (size + 2 * pad - taps) // stride + 1
    window = Window(strides=(stride, stride), pads=(pad, pad), dilation=(1, 1))
    x = te.placeholder((2, channels, size, size), name=name)
    w = te.placeholder((filters, channels, taps, taps), name=f"{name}w")
    g = te.placeholder((2, filters, outputs, outputs), name=f"{name}g")
    if part == "data":
        result = conv2d_data_gradient(g, w, shape=(2, channels, size, size), window=window)
        return te.create_prim_func([g, w, result])
    if part == "weight":
        result = conv2d_weight_gradient(x, g, shape=(filters, channels, taps, taps), window=window)
        return te.create_prim_func([x, g, result])
    y = topi.nn.conv2d_nchw(x, w, stride, pad, 1)
    return te.create_prim_func([x, w, topi.nn.relu(y) if has_epilogue else y])


@pytest.mark.parametrize("part", ["forward", "data", "weight"])
@pytest.mark.parametrize("stride", [1, 2])
def test_sizes_and_names_do_not_change_the_class(part: str, stride: int) -> None:
    one = workload_of(_convolution(part=part, stride=stride))
    other = workload_of(_convolution(16, 56, 40, stride=stride, part=part, name="activations"))
    assert one.class_ == other.class_
    assert one.family == other.family
    assert one.dims != other.dims
    assert one.operations < other.operations
    assert one.bytes < other.bytes


def test_a_stride_changes_the_class_and_not_the_family() -> None:
    one, other = workload_of(_convolution(stride=1)), workload_of(_convolution(stride=2))
    assert one.class_ != other.class_
    assert one.family == other.family


def test_an_epilogue_changes_the_class_and_not_the_family() -> None:
    one, other = workload_of(_convolution()), workload_of(_convolution(has_epilogue=True))
    assert one.class_ != other.class_
    assert one.family == other.family


def test_a_window_of_one_tap_is_another_class() -> None:
    assert workload_of(_convolution(taps=1)).class_ != workload_of(_convolution(taps=3)).class_


def test_both_gradients_and_the_forward_pass_are_three_families() -> None:
    assert len({workload_of(_convolution(part=part)).family for part in ("forward", "data", "weight")}) == 3


def test_a_product_and_its_transposes_are_three_classes() -> None:
    a, b = te.placeholder((48, 32), name="a"), te.placeholder((32, 64), name="b")
    at, bt = te.placeholder((32, 48), name="at"), te.placeholder((64, 32), name="bt")
    k = te.reduce_axis((0, 32), "k")
    products = (
        [a, b, te.compute((48, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))],
        [a, bt, te.compute((48, 64), lambda i, j: te.sum(a[i, k] * bt[j, k], axis=k))],
        [at, b, te.compute((48, 64), lambda i, j: te.sum(at[k, i] * b[k, j], axis=k))],
    )
    found = [workload_of(te.create_prim_func(product)) for product in products]
    assert len({workload.class_ for workload in found}) == 3
    assert found[0].dims == (48, 64, 32)
    assert found[0].operations == 2 * 48 * 64 * 32
    assert found[0].bytes == 4 * (48 * 32 + 32 * 64 + 48 * 64)
    assert found[0].dtype == "float32"


_PRINT = """
from tests.edgetrain_tuner.test_workload import _convolution
from edgetrain_tuner.workload import workload_of
for part in ("forward", "data", "weight"):
    print(workload_of(_convolution(part=part, has_epilogue=True)))
"""


def test_another_process_finds_the_same_key() -> None:
    root = Path(__file__).resolve().parents[2]
    outputs = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tuner'}"}
        done = subprocess.run(
            [sys.executable, "-c", _PRINT], env=environment, cwd=root, capture_output=True, text=True, check=True
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].count("Workload(") == 3
