from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgetrain._tvm import relax
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    distinct,
    normal,
)


def _max(name: str, shape: tuple[int, ...], kernel: list[int], **geometry: Any) -> Case:
    return Case(name=name, op=lambda x: relax.op.nn.max_pool2d(x, kernel, **geometry), inputs={"x": distinct(*shape)})


def _average(name: str, shape: tuple[int, ...], kernel: list[int], **geometry: Any) -> Case:
    return Case(name=name, op=lambda x: relax.op.nn.avg_pool2d(x, kernel, **geometry), inputs={"x": normal(*shape)})


CASES = (
    _max("max_plain", (2, 2, 6, 6), [2, 2], strides=[2, 2]),
    _max("max_overlapping", (1, 2, 6, 7), [3, 3], strides=[1, 1]),
    _max("max_padded", (1, 2, 6, 6), [3, 3], strides=[2, 2], padding=[1, 1, 1, 1]),
    _max("max_asymmetric", (1, 1, 5, 6), [3, 2], strides=[2, 1], padding=[0, 1, 1, 0]),
    _max("max_gaps", (1, 1, 8, 8), [2, 2], strides=[3, 3]),
    _max("max_dilated", (1, 1, 7, 7), [2, 3], strides=[1, 2], dilation=[2, 2]),
    _max("max_ceiling", (1, 1, 6, 7), [3, 3], strides=[2, 2], ceil_mode=True),
    _max("max_ceiling_padded", (1, 1, 6, 6), [3, 3], strides=[2, 2], padding=[1, 1, 1, 1], ceil_mode=True),
    _average("average_plain", (2, 2, 6, 6), [2, 2], strides=[2, 2]),
    _average("average_overlapping", (1, 1, 6, 7), [3, 3], strides=[1, 2]),
    _average("average_padding_excluded", (1, 1, 6, 6), [3, 3], strides=[2, 2], padding=[1, 1, 1, 1]),
    _average(
        "average_padding_counted",
        (1, 1, 6, 6),
        [3, 3],
        strides=[2, 2],
        padding=[1, 1, 1, 1],
        count_include_pad=True,
    ),
    _average("average_asymmetric", (1, 1, 5, 6), [3, 2], strides=[2, 1], padding=[0, 1, 2, 0]),
    _average("average_gaps", (1, 1, 8, 8), [2, 2], strides=[3, 3]),
    _average("average_ceiling", (1, 1, 6, 7), [3, 3], strides=[2, 2], ceil_mode=True),
    _average(
        "average_ceiling_padding_counted",
        (1, 1, 6, 6),
        [3, 3],
        strides=[2, 2],
        padding=[1, 1, 1, 1],
        ceil_mode=True,
        count_include_pad=True,
    ),
    _average(
        "average_ceiling_asymmetric_counted",
        (1, 1, 7, 7),
        [2, 2],
        strides=[2, 2],
        padding=[0, 0, 1, 0],
        ceil_mode=True,
        count_include_pad=True,
    ),
    _average("average_dilated", (1, 1, 7, 7), [2, 2], strides=[1, 1], dilation=[2, 2]),
    _average("average_dilated_padded", (1, 1, 7, 7), [3, 2], strides=[2, 1], dilation=[2, 3], padding=[1, 2, 2, 1]),
    _average(
        "average_dilated_counted",
        (1, 1, 7, 7),
        [3, 2],
        strides=[2, 2],
        dilation=[2, 1],
        padding=[1, 1, 2, 1],
        count_include_pad=True,
    ),
    *(
        Case(
            name=f"adaptive_{height}_{width}",
            op=lambda x, size=(height, width): relax.op.nn.adaptive_avg_pool2d(x, size),
            inputs={"x": normal(1, 2, 6, 7)},
        )
        for height, width in ((1, 1), (2, 3), (4, 5), (6, 7))
    ),
)
TIES = Case(
    name="ties",
    op=lambda x: relax.op.nn.max_pool2d(x, [2, 2], strides=[2, 2]),
    inputs={"x": np.zeros((1, 1, 4, 4))},
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases((*CASES, TIES))


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


@pytest.mark.compile
def test_the_first_of_several_maxima_gets_the_whole_gradient(compiled: CompiledCases) -> None:
    gradient = compiled.gradients(TIES)["x"][0, 0]
    expected = np.zeros((4, 4))
    expected[::2, ::2] = compiled.cotangents["ties"][0, 0]
    np.testing.assert_array_equal(gradient, expected)
