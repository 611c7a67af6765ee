"""Kernels come out as plain C functions: callable with raw pointers, with no runtime behind them."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain._tvm import te, tirx, topi, tvm
from edgetrain.compiler.lower import compile_kernels, lower, passes_before_pointers
from edgetrain.errors import DeviceError
from edgetrain.graph.extract import Extracted, Kernel
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from tests.edgetrain.processors import processor, this_processor

pytestmark = pytest.mark.compile

HOST = processor()
SERIAL = Machine(vector_bits=32, vector_registers=16, cores=1)
ALLOWED_UNDEFINED = {"expf", "logf", "memcpy", "memset"}


def _softmax_kernel() -> Kernel:
    x = te.placeholder((40, 9), "float32", name="x")
    return Kernel(symbol="k_softmax", function=te.create_prim_func([x, topi.nn.log_softmax(x)]))


def _extracted(kernel: Kernel) -> Extracted:
    def tensor(name: str, role: Role) -> Tensor:
        return Tensor(name=name, shape=(40, 9), dtype="float32", role=role)

    op = Op(name="softmax", kernel=kernel.symbol, reads=("x",), writes=("y",), phase=Phase.FORWARD)
    tensors = {"x": tensor("x", Role.INPUT), "y": tensor("y", Role.OUTPUT)}
    return Extracted(
        graph=TrainGraph(name="g", tensors=tensors, functions={"step": (op,)}), kernels=(kernel,), initial={}
    )


def _link(kernels: Path, out: Path) -> Path:
    command = [*find_compiler().command, "-shared", "-fPIC", "-o", str(out), str(kernels), "-lm"]
    subprocess.run(command, check=True)
    return out


def _undefined(path: Path) -> set[str]:
    text = subprocess.run(["nm", "-u", str(path)], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines() if line.strip()}


def test_a_kernel_runs_on_raw_pointers_with_its_scratch_passed_in(tmp_path: Path) -> None:
    lowered = lower(_extracted(_softmax_kernel()), SERIAL)
    scratch = lowered.graph.functions["step"][0].scratch_bytes
    assert scratch, "this kernel needs a row of maxima and a row of sums"
    compile_kernels(lowered.kernels, HOST, tmp_path / "k.o")
    kernel = ctypes.CDLL(str(_link(tmp_path / "k.o", tmp_path / "k.so")))["k_softmax"]
    x = np.random.default_rng(0).standard_normal((40, 9)).astype(np.float32)
    y = np.full_like(x, np.nan)
    buffers: list[Any] = [x, y, *(np.zeros(n, np.uint8) for n in scratch)]
    assert kernel(*(ctypes.c_void_p(b.ctypes.data) for b in buffers)) == 0
    exact = x.astype(np.float64)
    exact = exact - np.log(np.exp(exact).sum(1, keepdims=True))
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-6)


def test_kernels_need_nothing_but_the_c_library(tmp_path: Path) -> None:
    lowered = lower(_extracted(_softmax_kernel()), SERIAL)
    compile_kernels(lowered.kernels, HOST, tmp_path / "k.o")
    assert _undefined(tmp_path / "k.o") <= ALLOWED_UNDEFINED


def test_the_same_kernels_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.o", "b.o"):
        compile_kernels(lower(_extracted(_softmax_kernel()), SERIAL).kernels, HOST, tmp_path / name)
    assert (tmp_path / "a.o").read_bytes() == (tmp_path / "b.o").read_bytes()


@pytest.mark.parametrize(
    ("triple", "cpu", "machine"),
    [
        ("aarch64-linux-gnu", "cortex-a72", 183),
        ("armv7a-linux-gnueabihf", "cortex-a7", 40),
        ("riscv64-linux-gnu", "generic-rv64", 243),
        ("thumbv7em-none-eabihf", "cortex-m4", 40),
    ],
)
def test_every_architecture_gets_its_own_code(tmp_path: Path, triple: str, cpu: str, machine: int) -> None:
    lowered = lower(_extracted(_softmax_kernel()), SERIAL)
    compile_kernels(lowered.kernels, processor(triple, cpu), tmp_path / "k.o")
    header = (tmp_path / "k.o").read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == machine


def test_a_target_that_llvm_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="does not accept target"):
        compile_kernels((_softmax_kernel(),), processor("pdp11-unknown-none", "x"), tmp_path / "k.o")


def _rotation_kernel(rows: int, pairs: int, heads: int) -> Kernel:
    """Rotary positions with every view inlined, as fusion leaves them: indices wrap inside of the innermost loop."""
    width = 2 * pairs * heads
    x = te.placeholder((rows, width), "float32", name="x")
    cosine, sine = (te.placeholder((rows, pairs), "float32", name=name) for name in ("cosine", "sine"))

    def element(j: Any, i: Any) -> Any:
        place = tirx.floormod(i, 2 * pairs)

        def at(v: Any) -> Any:
            return x[tirx.floormod(j + tirx.floordiv(v, width), rows), tirx.floormod(v + width, width)]

        turned = sine[j, place - pairs] * at(i - pairs) + cosine[j, place - pairs] * x[j, i]
        return tirx.if_then_else(place >= pairs, turned, cosine[j, place] * x[j, i] - sine[j, place] * at(i + pairs))

    function = te.create_prim_func([x, cosine, sine, te.compute((rows, width), element, name="rotated")])
    return Kernel(symbol="k_rotate", function=function)


@pytest.mark.parametrize("pairs", [1, 2, 4, 8])
@pytest.mark.parametrize("heads", [1, 4, 8])
def test_an_index_that_wraps_inside_of_a_vector_reads_no_foreign_memory(tmp_path: Path, pairs: int, heads: int) -> None:
    rows = 24
    compile_kernels([_rotation_kernel(rows, pairs, heads)], this_processor(), tmp_path / "k.o")
    kernel = ctypes.CDLL(str(_link(tmp_path / "k.o", tmp_path / "k.so")))["k_rotate"]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, heads, 2 * pairs)).astype(np.float32)
    cosine, sine = rng.standard_normal((2, rows, 1, pairs)).astype(np.float32)
    rotated = np.zeros_like(x)
    assert kernel(*(a.ctypes.data_as(ctypes.c_void_p) for a in (x, cosine.copy(), sine.copy(), rotated))) == 0
    one, two = x[..., :pairs], x[..., pairs:]
    expected = np.concatenate([cosine * one - sine * two, sine * one + cosine * two], -1)
    np.testing.assert_allclose(rotated, expected, rtol=1e-5, atol=1e-6)


def test_a_loop_over_several_axes_runs_through_memory_without_dividing() -> None:
    shape = (512, 512, 3, 3)  # in tiles of 512, of which nine make up the last three axes
    x = te.placeholder(shape, "float32", name="x")
    function = te.create_prim_func([x, te.compute(shape, lambda *i: x[i] + x[i])])
    scheduled = rules.schedule(function, Machine(vector_bits=256, vector_registers=16, cores=2))
    module = tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")})
    text = tvm.ir.transform.Sequential(passes_before_pointers())(module).script()
    assert "range(512)" in text
    assert "//" not in text
