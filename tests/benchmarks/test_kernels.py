"""The benchmark's own arithmetic: means by family, and a library that computes what its cases say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.kernel_cases import Case, product_cases
from benchmarks.kernels import build, means


def test_a_mean_is_geometric_and_shows_its_least_part() -> None:
    rows = [
        {"family": "matmul", "threads": 1, "speedup": 4.0},
        {"family": "matmul", "threads": 1, "speedup": 1.0},
        {"family": "matmul", "threads": 2, "speedup": 3.0},
    ]
    one, two = means(rows)
    assert (one["threads"], one["shapes"], one["mean_speedup"], one["least"]) == (1, 2, pytest.approx(2.0), 1.0)
    assert (two["threads"], two["shapes"], two["least"]) == (2, 1, 3.0)


@pytest.mark.compile
@pytest.mark.parametrize("threads", [1, 2])
def test_the_library_computes_its_cases(threads: int, tmp_path: Path) -> None:
    cases: list[Case] = list(product_cases(33, 47, 65))
    assert len(cases) == 3
    built = build(cases, tmp_path)
    built.use_threads(threads)
    random = np.random.default_rng(1)
    for number, case in enumerate(cases):
        a, b = (random.standard_normal(shape, dtype=np.float32) for shape in case.inputs)
        result = np.full(case.output, np.nan, np.float32)
        built.call(number, [a, b, result])()
        np.testing.assert_allclose(result, case.peer(a, b), rtol=1e-4, atol=1e-4)
    built.library.edge_threads_close()
