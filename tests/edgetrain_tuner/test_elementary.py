"""Elementary functions as arithmetic: near the exact values, compiled as programs are, and right at the limits."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tvm import te, tirx

from edgetrain.compiler.lower import compile_kernels
from edgetrain.graph.extract import Kernel
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from tests.edgetrain.processors import this_processor

pytestmark = pytest.mark.compile

COUNT = 1 << 16
VECTORS = Machine(vector_bits=256, vector_registers=16, cores=1)
SCALAR = Machine(vector_bits=32, vector_registers=16, cores=1)

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Elementary:
    expression: Callable[[Any], Any]
    exact: Callable[[float], float]
    largest_error: float  # in units of the last place
    least_unit_of: float = 0.0  # a unit is not smaller than the last place of this
    at_infinity: tuple[float, float]  # minus, plus


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def _sum_of_one_and_erf(x: Any) -> Any:
    return tirx.erf(x) + np.float32(1.0)


def _half_and_half_of_erf(x: Any) -> Any:
    return np.float32(0.5) + np.float32(0.5) * tirx.erf(x)


FUNCTIONS: Mapping[str, Elementary] = {
    "exp": Elementary(expression=tirx.exp, exact=math.exp, largest_error=2.0, at_infinity=(0.0, math.inf)),
    "erf": Elementary(expression=tirx.erf, exact=math.erf, largest_error=2.0, at_infinity=(-1.0, 1.0)),
    "tanh": Elementary(expression=tirx.tanh, exact=math.tanh, largest_error=2.0, at_infinity=(-1.0, 1.0)),
    "sigmoid": Elementary(expression=tirx.sigmoid, exact=_sigmoid, largest_error=3.0, at_infinity=(0.0, 1.0)),
    "gate": Elementary(
        expression=_sum_of_one_and_erf,
        exact=lambda x: math.erfc(-x),
        largest_error=2.0,
        least_unit_of=0.5,
        at_infinity=(0.0, 2.0),
    ),
    "half_gate": Elementary(
        expression=_half_and_half_of_erf,
        exact=lambda x: 0.5 * math.erfc(-x),
        largest_error=2.0,
        least_unit_of=0.25,
        at_infinity=(0.0, 1.0),
    ),
}


def _kernel(name: str, machine: Machine) -> Kernel:
    x = te.placeholder((COUNT,), "float32", name="x")
    function = te.create_prim_func([x, te.compute((COUNT,), lambda i: FUNCTIONS[name].expression(x[i]))])
    return Kernel(symbol=name, function=rules.schedule(function, machine))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions with what LLVM is allowed in programs: sums reassociated, products contracted."""
    folder: Path = tmp_path_factory.mktemp("elementary")
    compile_kernels([_kernel(name, VECTORS) for name in FUNCTIONS], this_processor(), folder / "kernels.o")
    options = ["-shared", "-fPIC", "kernels.o", "-o", "kernels.so", "-lm"]
    subprocess.run([*find_compiler().command, *options], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


def _computed(library: ctypes.CDLL, name: str, values: Array) -> Array:
    padded = np.resize(values, COUNT).astype(np.float32)
    result = np.full(COUNT, -7.0, np.float32)
    assert library[name](ctypes.c_void_p(padded.ctypes.data), ctypes.c_void_p(result.ctypes.data)) == 0
    return result[: len(values)]


@pytest.mark.parametrize("reach", [1e-3, 1.0, 6.0, 87.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_value_is_near_the_exact_one(name: str, reach: float, library: ctypes.CDLL) -> None:
    values = np.random.default_rng(1).uniform(-reach, reach, COUNT).astype(np.float32)
    exact = np.array([FUNCTIONS[name].exact(float(v)) for v in values])
    unit = np.spacing(np.maximum(np.abs(exact), FUNCTIONS[name].least_unit_of).astype(np.float32))
    error = np.abs(_computed(library, name, values) - exact) / unit
    assert error.max() <= FUNCTIONS[name].largest_error


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_value_is_below_that_of_a_smaller_argument(name: str, library: ctypes.CDLL) -> None:
    values = np.linspace(-9.0, 9.0, COUNT, dtype=np.float32)
    assert (np.diff(_computed(library, name, values)) >= 0).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_limits_are_exact_and_nan_stays_nan(name: str, library: ctypes.CDLL) -> None:
    values = np.array([-math.inf, math.inf, -1e38, 1e38, math.nan, 0.0], np.float32)
    minus, plus = FUNCTIONS[name].at_infinity
    zero = FUNCTIONS[name].exact(0.0)
    np.testing.assert_array_equal(
        _computed(library, name, values), np.array([minus, plus, minus, plus, math.nan, zero], np.float32)
    )


def test_exp_reaches_the_largest_float_and_ends_in_zero(library: ctypes.CDLL) -> None:
    values = np.array([88.7228, 88.73, -87.33, -87.34], np.float32)
    largest, above, least, below = _computed(library, "exp", values)
    assert largest == pytest.approx(math.exp(float(values[0])), rel=1e-6)
    assert above == math.inf
    assert least == pytest.approx(math.exp(float(values[2])), rel=1e-6)
    assert below == 0.0


def test_a_gate_that_is_nearly_closed_is_nearer_than_one_plus_erf(library: ctypes.CDLL) -> None:
    values = np.linspace(-3.5, -2.0, 1000, dtype=np.float32)
    exact = np.array([math.erfc(-float(v)) for v in values])
    errors = np.abs(_computed(library, "gate", values) - exact)
    assert errors.max() < 0.25 * np.abs(np.float32(1.0) + _computed(library, "erf", values) - exact).max()


@pytest.mark.parametrize("name", ["exp", "erf", "tanh"])
def test_targets_without_vectors_keep_the_call(name: str) -> None:
    assert f"T.{name}(" in _kernel(name, SCALAR).function.script()
    assert f"T.{name}(" not in _kernel(name, VECTORS).function.script()
