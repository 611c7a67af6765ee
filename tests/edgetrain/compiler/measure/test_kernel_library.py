"""Single kernels run as they do in a program: on its threads, with their scratch, over what they read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain._tvm import te
from edgetrain.compiler.measure.kernel_library import KernelLibrary
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from tests.edgetrain.processors import this_processor
from tests.edgetrain_tuner.machines import eager

pytestmark = pytest.mark.compile

MACHINE = Machine(vector_bits=128, vector_registers=16, cores=2)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[KernelLibrary]:
    library = KernelLibrary(this_processor(cores=2), threads=2, folder=tmp_path)
    yield library
    library.close()


def _product(rows: int, columns: int, depth: int) -> Any:
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), "k")
    return te.create_prim_func([a, b, te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))])


def test_a_kernel_with_threads_and_scratch_computes_its_product(library: KernelLibrary) -> None:
    function = rules.schedule(_product(65, 47, 70), eager(MACHINE))
    assert "T.parallel" in function.script()
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((65, 70), (70, 47)))
    for _ in range(2):  # two libraries at once: each has its own code, both the same threads
        result = np.full((65, 47), np.nan, np.float32)
        library.build(function, ()).bound([a, b, result])()
        np.testing.assert_allclose(result, a @ b, rtol=1e-4, atol=1e-4)


def test_a_kernel_may_write_over_what_it_reads(library: KernelLibrary) -> None:
    w, g = te.placeholder((100,), name="w"), te.placeholder((100,), name="g")
    function = te.create_prim_func([w, g, te.compute((100,), lambda i: w[i] - g[i])])
    weights, gradient = np.ones(100, np.float32), np.arange(100, dtype=np.float32)
    library.build(rules.schedule(function, MACHINE), ((0, 2),)).bound([weights, gradient, weights])()
    np.testing.assert_array_equal(weights, 1 - gradient)


def test_nothing_is_left_of_a_kernel_that_was_built(library: KernelLibrary, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    library.build(rules.schedule(_product(8, 8, 8), MACHINE), ()).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
