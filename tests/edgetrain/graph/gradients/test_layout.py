from __future__ import annotations

from typing import Any

import pytest

from edgetrain._tvm import relax
from edgetrain.graph.gradients.layout import LAYOUT_RULES
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    normal,
)

o = relax.op


def _one(name: str, op: Any, *shape: int) -> Case:
    return Case(name=name, op=op, inputs={"x": normal(*shape)})


def _part(tuple_expr: Any, index: int) -> Any:
    return relax.TupleGetItem(tuple_expr, index)


def _three(name: str, op: Any, *shapes: tuple[int, ...]) -> Case:
    return Case(name=name, op=op, inputs={f"x{i}": normal(*s, seed=i) for i, s in enumerate(shapes)})


CASES = (
    _one("reshape", lambda x: o.reshape(x, (4, 6)), 2, 3, 4),
    _one("reshape_inferred", lambda x: o.reshape(x, (-1, 2)), 2, 3),
    _one("flatten", o.flatten, 2, 3, 2),
    _one("squeeze", lambda x: o.squeeze(x, [0, 2]), 1, 3, 1, 2),
    _one("squeeze_all", o.squeeze, 1, 3, 1),
    _one("expand_dims", lambda x: o.expand_dims(x, [0, -1]), 2, 3),
    _one("batch_flatten", lambda x: o.nn.batch_flatten(x), 2, 3, 2),
    _one("permute_dims", lambda x: o.permute_dims(x, [2, 0, 1]), 2, 3, 4),
    _one("permute_dims_default", o.permute_dims, 2, 3, 4),
    _one("broadcast_to", lambda x: o.broadcast_to(x, (2, 3, 4)), 3, 1),
    _three("concat", lambda *x: o.concat(list(x), 1), (2, 1, 2), (2, 3, 2), (2, 2, 2)),
    _three("concat_last", lambda *x: o.concat(list(x), -1), (2, 1), (2, 3)),
    Case(name="concat_with_itself", op=lambda x: o.concat([x, o.negative(x), x], 0), inputs={"x": normal(2, 2)}),
    _three("stack", lambda *x: o.stack(list(x), 1), (2, 3), (2, 3)),
    _three("stack_last", lambda *x: o.stack(list(x), -1), (2, 3), (2, 3)),
    _one("split_one_part_used", lambda x: _part(o.split(x, 3, 1), 1), 2, 6),
    _one("split_uneven", lambda x: _part(o.split(x, [1, 4], -1), 2), 2, 6),
    _one(
        "split_all_parts_used", lambda x: o.multiply(*(_part(s, i) for s in [o.split(x, 2, 0)] for i in range(2))), 4, 3
    ),
    _one("slice", lambda x: o.strided_slice(x, [0, 1], [1, 0], [3, 4]), 4, 5),
    _one("slice_strided", lambda x: o.strided_slice(x, [1], [1], [7], [3]), 2, 8),
    _one("slice_negative_bounds", lambda x: o.strided_slice(x, [-1], [-4], [-1]), 2, 6),
    _one("slice_overlong", lambda x: o.strided_slice(x, [1], [2], [1000]), 2, 6),
    _one("slice_backwards", lambda x: o.strided_slice(x, [1], [-1], [-7], [-2]), 2, 6),
    _one("pad", lambda x: o.nn.pad(x, [0, 0, 1, 2]), 2, 3),
    _one("pad_images", lambda x: o.nn.pad(x, [0, 0, 0, 0, 1, 0, 2, 1], pad_value=3.0), 1, 2, 2, 3),
    _one("pad_nothing", lambda x: o.nn.pad(x, [0, 0, 0, 0]), 2, 3),
    _one("flip", lambda x: o.flip(x, 1), 2, 3),
    _one("tile", lambda x: o.tile(x, (2, 3)), 2, 3),
    _one("tile_more_axes", lambda x: o.tile(x, (2, 1, 2)), 2, 3),
    _one("repeat", lambda x: o.repeat(x, 2, 0), 2, 3),
    _one("repeat_flat", lambda x: o.repeat(x, 2), 2, 3),
    _one("tril", lambda x: o.tril(x, 1), 4, 4),
    _one("triu", lambda x: o.triu(x, 0), 2, 3, 3),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)


def test_every_rule_has_a_case() -> None:
    used = " ".join(case.name for case in CASES)
    short = [name.removeprefix("relax.").removeprefix("nn.").removeprefix("strided_") for name in LAYOUT_RULES]
    assert [name for name in short if name not in used] == []
