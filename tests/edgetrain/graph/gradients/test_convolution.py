from __future__ import annotations

from typing import Any

import pytest

from edgetrain._tvm import relax
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    normal,
)


def _conv(name: str, data: tuple[int, ...], weight: tuple[int, ...], *, groups: int = 1, **geometry: Any) -> Case:
    return Case(
        name=name,
        op=lambda x, w: relax.op.nn.conv2d(x, w, groups=groups, **geometry),
        inputs={"x": normal(*data), "w": normal(*weight, seed=1)},
    )


def _transpose(name: str, data: tuple[int, ...], weight: tuple[int, ...], *, groups: int = 1, **geometry: Any) -> Case:
    return Case(
        name=name,
        op=lambda x, w: relax.op.nn.conv2d_transpose(x, w, groups=groups, **geometry),
        inputs={"x": normal(*data), "w": normal(*weight, seed=1)},
    )


CASES = (
    _conv("unit_stride", (2, 3, 5, 6), (4, 3, 3, 3), padding=[1, 1, 1, 1]),
    _conv("no_padding", (1, 2, 5, 4), (3, 2, 2, 3)),
    _conv("one_by_one", (2, 3, 4, 4), (5, 3, 1, 1)),
    _conv("one_by_one_stride_two", (1, 3, 5, 4), (2, 3, 1, 1), strides=[2, 2]),
    _conv("stride_two", (1, 2, 7, 8), (3, 2, 3, 3), strides=[2, 2], padding=[1, 1, 1, 1]),
    _conv("stride_two_asymmetric", (1, 2, 6, 6), (2, 2, 3, 3), strides=[2, 2], padding=[0, 0, 1, 1]),
    _conv("stride_three_small_kernel", (1, 2, 8, 7), (2, 2, 2, 2), strides=[3, 3]),
    _conv("stride_three_large_kernel", (1, 1, 9, 9), (2, 1, 5, 5), strides=[3, 3], padding=[2, 2, 2, 2]),
    _conv("mixed_strides", (1, 2, 7, 6), (2, 2, 3, 2), strides=[1, 2], padding=[1, 0, 0, 1]),
    _conv("last_rows_unread", (1, 1, 8, 8), (1, 1, 3, 3), strides=[4, 4]),
    _conv("padding_larger_than_kernel", (1, 1, 3, 3), (1, 1, 2, 2), padding=[3, 3, 3, 3]),
    _conv("dilated", (1, 2, 7, 7), (2, 2, 3, 3), dilation=[2, 2], padding=[2, 2, 2, 2]),
    _conv("dilated_strided", (1, 2, 9, 8), (2, 2, 3, 2), dilation=[2, 3], strides=[2, 2], padding=[1, 2, 2, 1]),
    _conv("grouped", (1, 4, 5, 5), (6, 2, 3, 3), groups=2, padding=[1, 1, 1, 1]),
    _conv("depthwise", (2, 3, 5, 5), (3, 1, 3, 3), groups=3, strides=[2, 2], padding=[1, 1, 1, 1]),
    _conv("depthwise_multiplier", (1, 3, 4, 5), (6, 1, 3, 3), groups=3, padding=[0, 1, 1, 0]),
    _transpose("transposed", (2, 3, 3, 4), (3, 2, 3, 3)),
    _transpose("transposed_stride_two", (1, 2, 3, 3), (2, 3, 2, 2), strides=[2, 2]),
    _transpose(
        "transposed_output_padding",
        (1, 2, 3, 4),
        (2, 2, 3, 3),
        strides=[2, 2],
        padding=[1, 1, 1, 1],
        output_padding=[1, 0],
    ),
    _transpose("transposed_asymmetric", (1, 2, 3, 3), (2, 1, 3, 3), strides=[2, 1], padding=[0, 1, 1, 0]),
    _transpose("transposed_dilated", (1, 2, 3, 3), (2, 2, 2, 2), dilation=[2, 2], padding=[1, 1, 1, 1]),
    _transpose("transposed_groups", (1, 4, 3, 3), (4, 1, 3, 3), groups=2, strides=[2, 2]),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)
