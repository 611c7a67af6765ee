"""The generic rule changes loops, never results: every scheduled kernel against its unscheduled self."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.generic import Generic
from edgetrain_tuner.rules.rule import Kernel
from tests.edgetrain_tuner.rules.unscheduled import written

pytestmark = pytest.mark.compile

MACHINE = Machine(vector_bits=256, vector_registers=16, cores=2)


def _placeholders(*shapes: tuple[int, ...]) -> list[Any]:
    return [te.placeholder(s, "float32", name=f"p{i}") for i, s in enumerate(shapes)]


def _conv_relu(n: int, c: int, k: int, size: int, stride: int) -> list[Any]:
    x, w = _placeholders((n, c, size, size), (k, c, 3, 3))
    y = topi.nn.conv2d_nchw(x, w, stride, 1, 1)
    return [x, w, topi.nn.relu(y)]


def _matmul(m: int, n: int, k: int, transposed: bool) -> list[Any]:
    a, b = _placeholders((m, k), (n, k) if transposed else (k, n))
    r = te.reduce_axis((0, k), "r")
    y = te.compute((m, n), lambda i, j: te.sum(a[i, r] * (b[j, r] if transposed else b[r, j]), axis=r))
    return [a, b, y]


def _channel_mean(n: int, c: int, size: int) -> list[Any]:
    (x,) = _placeholders((n, c, size, size))
    axes = [te.reduce_axis((0, e)) for e in (n, size, size)]
    total = te.compute((c,), lambda k: te.sum(x[axes[0], k, axes[1], axes[2]], axis=axes))
    return [x, te.compute((c,), lambda k: total[k] / tirx.const(float(n * size * size), "float32"))]


def _broadcast(n: int, c: int, size: int) -> list[Any]:
    x, g = _placeholders((n, c, size, size), (c,))
    return [x, g, te.compute(x.shape, lambda *i: tirx.max(x[i] * g[i[1]], tirx.const(0.0, "float32")))]


def _softmax(n: int, c: int) -> list[Any]:
    (x,) = _placeholders((n, c))
    return [x, topi.nn.log_softmax(x)]


CASES: Mapping[str, Callable[[], list[Any]]] = {
    "conv+relu, extents that divide": lambda: _conv_relu(2, 16, 16, 16, 1),
    "conv+relu, prime extents": lambda: _conv_relu(1, 3, 5, 13, 1),
    "conv+relu, stride 2": lambda: _conv_relu(2, 8, 8, 17, 2),
    "matmul": lambda: _matmul(32, 64, 48, transposed=False),
    "matmul with a long row": lambda: _matmul(3, 2048, 7, transposed=False),
    "matmul, transposed": lambda: _matmul(17, 31, 129, transposed=True),
    "matmul of one column": lambda: _matmul(64, 1, 1024, transposed=False),
    "channel mean": lambda: _channel_mean(4, 7, 9),
    "broadcast over channels": lambda: _broadcast(2, 24, 14),
    "log-softmax": lambda: _softmax(64, 101),
}


def _run(function: Any, arrays: list[Any]) -> Any:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target={"kind": "llvm"})
    tensors = [tvm.runtime.tensor(a) for a in arrays]
    compiled["main"](*tensors)
    return tensors[-1].numpy()


@pytest.mark.parametrize("case", CASES)
def test_a_scheduled_kernel_computes_what_the_unscheduled_one_does(case: str) -> None:
    arguments = CASES[case]()
    function = te.create_prim_func(arguments)
    scheduled = written(function, Generic(), MACHINE)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(d) for d in t.shape]).astype(np.float32) for t in arguments]
    arrays[-1][...] = np.nan  # an element that nobody writes must show
    expected = _run(function, arrays)
    np.testing.assert_allclose(_run(scheduled, arrays), expected, rtol=2e-5, atol=2e-5)


def test_a_fused_epilogue_keeps_no_whole_intermediate() -> None:
    scheduled = written(te.create_prim_func(_conv_relu(2, 16, 16, 16, 1)), Generic(), MACHINE)
    lowered = tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation()(tvm.IRModule({"main": scheduled}))
    lowered = tvm.s_tir.transform.ConvertBlocksToOpaque()(lowered)
    text = tvm.s_tir.transform.CompactBufferAllocation()(lowered)["main"].script()
    allocations = [line for line in text.splitlines() if "alloc_buffer" in line]
    assert len(allocations) == 1, text
    assert "16, 16, 16" not in allocations[0].replace("T.int64(16)", "16")


def test_one_core_gets_no_parallel_loop() -> None:
    function = te.create_prim_func(_matmul(64, 64, 64, transposed=False))
    assert "T.parallel" in written(function, Generic(), MACHINE).script()
    single = Machine(vector_bits=32, vector_registers=16, cores=1)
    assert "T.parallel" not in written(function, Generic(), single).script()


def test_a_scalar_machine_gets_one_loop_over_elements() -> None:
    """Of two, LLVM writes the outer one out: ten times the code for an update of 5,120 weights."""
    kernel = Kernel(function=te.create_prim_func(_broadcast(1, 1, 80)), contraction=None)
    scalar = Machine(vector_bits=32, vector_registers=32, cores=1)
    assert Generic().propose(kernel, MACHINE)["tile"] == (400,)
    assert Generic().propose(kernel, scalar)["tile"] == (0,)
