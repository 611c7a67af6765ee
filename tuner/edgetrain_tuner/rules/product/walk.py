"""The offsets of A along k, in a table, where k is several axes.

A loop for each axis would put short loops inside long ones. LLVM unrolls short loops and then keeps their common loads
in registers, which the sums need. With offsets in a table there is one loop, at the price of one more load in each
iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.rules.contraction import Contraction, replaced


@dataclass(frozen=True, kw_only=True)
class Walk:
    """`start` is A's element for the first k; any other lies `step` elements on, an expression of s and k."""

    start: Any
    step: Any

    def at(self, step: Any) -> Any:
        """The element that lies a step on. As memory has it: the last index leaves its axis."""
        *lead, last = self.start.indices
        return self.start.source[(*lead, last + step.astype(last.ty.dtype))]


def find_walk(contraction: Contraction, starts: Mapping[Any, Any]) -> Walk | None:
    """`starts` are variables for the first k, zero for an axis that has none.

    None where k is one axis, or where a step depends on the row it starts from.
    """
    if len(contraction.k) < 2 or not isinstance(contraction.a, TensorLoad):
        return None
    analyzer = tvm.sym.Analyzer()
    for axis in (*contraction.s, *contraction.i, *contraction.k):
        analyzer.bind(axis.variable, tvm.ir.Range(0, axis.extent))
    first_i, first_k = (
        {axis.variable: starts.get(axis.variable, tirx.IntImm(axis.variable.ty.dtype, 0)) for axis in axes}
        for axes in (contraction.i, contraction.k)
    )
    place = _position(contraction.a)
    step = place - replaced(place, first_k)
    everywhere = replaced(step, first_i)
    if not analyzer.can_prove_equal(step, everywhere):
        return None
    start = contraction.a.source[tuple(analyzer.simplify(replaced(i, first_k)) for i in contraction.a.indices)]
    return Walk(start=start, step=analyzer.simplify(everywhere))


def _position(load: Any) -> Any:
    position = load.indices[0]
    for index, extent in zip(load.indices[1:], load.source.ty.shape[1:], strict=True):
        position = position * extent + index
    return position
