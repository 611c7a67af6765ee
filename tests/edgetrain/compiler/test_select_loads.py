"""What a choice reads is read before it, where it may be read at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgetrain._tvm import s_tir, te, tirx, tvm
from edgetrain.compiler.select_loads import load_before_selecting

pytestmark = pytest.mark.compile

ZERO = tirx.const(0.0, "float32")


def _lowered(element: Callable[[Any, Any, Any], Any]) -> str:
    """The text of a kernel over 8 elements, its choices as TVM leaves them after our pass."""
    y, dy = te.placeholder((8,), name="y"), te.placeholder((8,), name="dy")
    function = te.create_prim_func([y, dy, te.compute((8,), lambda i: element(y, dy, i), name="out")])
    passes = [
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LowerOpaqueBlock(),
        load_before_selecting(),
        s_tir.transform.RewriteUnsafeSelect(),
    ]
    return str(tvm.ir.transform.Sequential(passes)(tvm.IRModule({"main": function})).script())


def test_a_choice_between_elements_that_exist_needs_no_branch() -> None:
    text = _lowered(lambda y, dy, i: tirx.Select(y[i] > ZERO, dy[i], ZERO))
    assert "T.Select" in text
    assert "if_then_else" not in text


def test_choices_inside_choices_need_no_branch_either() -> None:
    text = _lowered(lambda y, dy, i: tirx.Select(y[i] > ZERO, tirx.Select(dy[i] > ZERO, dy[i], y[7 - i]) * dy[i], ZERO))
    assert text.count("T.Select") == 2
    assert "if_then_else" not in text


def test_an_element_that_may_not_exist_stays_behind_its_branch() -> None:
    text = _lowered(lambda y, dy, i: tirx.Select(i > 0, dy[i - 1], ZERO))
    assert "if_then_else" in text


def test_an_element_behind_a_branch_is_not_read_before_it() -> None:
    text = _lowered(lambda y, dy, i: tirx.Select(y[i] > ZERO, tirx.if_then_else(i > 0, dy[i - 1], ZERO), ZERO))
    assert "T.Let" not in text
