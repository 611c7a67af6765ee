"""One reduction with at most elementwise work behind it: what windows and register tiles are written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.rules.contraction import Axis, replaced
from edgetrain_tuner.rules.inlining import inlined

_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.iter_type


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """`start` combined with every value of the `taps`, for each place of the `axes`."""

    function: Any
    block: Any
    axes: tuple[Axis, ...]  # of the result, in its order
    taps: tuple[Axis, ...]
    start: Any  # the value of no tap
    combined: Any  # the value so far, a load of `result`, with one more tap
    result: Any
    store: Any  # the statement that keeps an element, its value a load of `result`
    store_axes: tuple[Any, ...]

    def kept(self, places: Sequence[Any], value: Any, analyzer: Any) -> Any:
        """The statement that keeps the value of a place."""
        store = replaced(self.store, dict(zip(self.store_axes, places, strict=True)))
        indices = [analyzer.simplify(index) for index in store.indices]
        return tirx.BufferStore(store.buffer, with_result(analyzer.simplify(store.value), self.result, value), indices)

    def rewritten(self, body: Any) -> Any:
        """The kernel with another body."""
        original = self.function
        return tirx.PrimFunc(original.params, body, original.ret_type, original.attrs).without_attr("global_symbol")


def analyzer_of(ranges: Mapping[Any, int]) -> Any:
    """One that knows how many values each variable has, from 0 on."""
    analyzer = tvm.sym.Analyzer()
    for variable, extent in ranges.items():
        analyzer.bind(variable, tvm.ir.Range(0, extent))
    return analyzer


def with_result(expression: Any, result: Any, value: Any) -> Any:
    """The expression with `value` for every load of the buffer `result`."""
    return tvm_ffi.structural_map(expression, (TensorLoad, lambda load: value if load.source.same_as(result) else load))


def loads_of(expression: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (TensorLoad, found.append))
    return found


def find_reduction(function: Any) -> Reduction | None:
    """The reduction that the kernel computes, everything before it inlined; None for any other kernel."""
    kernel = inlined(function)
    if kernel is None:
        return None
    blocks = kernel.blocks
    if len(blocks) not in (1, 2) or not _is_reduction(blocks[0]):
        return None
    if len(blocks) == 2 and not _is_elementwise(blocks[1], blocks[0].body.buffer):
        return None
    return _reduction(kernel.function, blocks)


def _reduction(function: Any, blocks: Sequence[Any]) -> Reduction:
    block, last = blocks[0], blocks[-1]
    axes = [Axis(variable=a.var, extent=int(a.dom.extent)) for a in block.iter_vars if int(a.iter_type) == _SPATIAL]
    taps = [Axis(variable=a.var, extent=int(a.dom.extent)) for a in block.iter_vars if int(a.iter_type) == _REDUCE]
    result, indices = block.body.buffer, block.body.indices
    is_alone = len(blocks) == 1
    return Reduction(
        function=function,
        block=block,
        axes=tuple(axes),
        taps=tuple(taps),
        start=block.init.value,
        combined=block.body.value,
        result=result,
        store=tirx.BufferStore(result, result[tuple(indices)], indices) if is_alone else last.body,
        store_axes=tuple(axis.variable for axis in axes) if is_alone else tuple(a.var for a in last.iter_vars),
    )


def _is_reduction(block: Any) -> bool:
    """Whether the block reduces something to one element for each place, in the order of its axes."""
    if not isinstance(block.body, tirx.BufferStore) or not isinstance(block.init, tirx.BufferStore):
        return False
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    places = [axis.var for axis in block.iter_vars if int(axis.iter_type) == _SPATIAL]
    return _REDUCE in kinds and set(kinds) <= {_SPATIAL, _REDUCE} and _are_same(block.body.indices, places)


def _is_elementwise(block: Any, result: Any) -> bool:
    """Whether the block makes one element of each of `result`, at the same place."""
    if any(int(axis.iter_type) != _SPATIAL for axis in block.iter_vars) or not isinstance(block.body, tirx.BufferStore):
        return False
    places = [axis.var for axis in block.iter_vars]
    loads = [load for load in loads_of(block.body.value) if load.source.same_as(result)]
    return bool(loads) and all(_are_same(load.indices, places) for load in loads)


def _are_same(indices: Sequence[Any], variables: Sequence[Any]) -> bool:
    return len(indices) == len(variables) and all(i.same_as(v) for i, v in zip(indices, variables, strict=True))
