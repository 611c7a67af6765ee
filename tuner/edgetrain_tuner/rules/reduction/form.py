"""Recognises a kernel that is one reduction, with at most elementwise work after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.rules.contraction import Axis, Epilogue, epilogue_of
from edgetrain_tuner.rules.inlining import inlined
from edgetrain_tuner.rules.loops import sequence

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
    epilogue: Epilogue  # how an element is stored

    def kept(self, places: Sequence[Any], value: Any, analyzer: Any) -> Any:
        """The statement that stores the value of a place, through the epilogue."""
        stores = self.epilogue.at(places, self.result[tuple(places)])
        return sequence(*(self._simplified(store, value, analyzer) for store in stores))

    def _simplified(self, store: Any, value: Any, analyzer: Any) -> Any:
        """The store, simplified before the value is put in, which the analyzer cannot look into."""
        indices = [analyzer.simplify(index) for index in store.indices]
        return tirx.BufferStore(store.buffer, with_result(analyzer.simplify(store.value), self.result, value), indices)

    def rewritten(self, body: Any) -> Any:
        """The kernel with another body."""
        original = self.function
        return tirx.PrimFunc(original.params, body, original.ret_type, original.attrs).without_attr("global_symbol")


def analyzer_of(ranges: Mapping[Any, int]) -> Any:
    """An analyzer that knows the range of each variable: from 0 to before its extent."""
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
    if kernel is None or not kernel.blocks:
        return None
    block, *behind = kernel.blocks
    if not _is_reduction(block):
        return None
    epilogue = epilogue_of(kernel.function, behind, block) if behind else _stored_as_it_is(block)
    return None if epilogue is None else _reduction(kernel.function, block, epilogue)


def _stored_as_it_is(block: Any) -> Epilogue:
    result, indices = block.body.buffer, list(block.body.indices)
    axes = tuple(axis.var for axis in block.iter_vars if int(axis.iter_type) == _SPATIAL)
    return Epilogue(axes=axes, result=result, stores=(tirx.BufferStore(result, result[tuple(indices)], indices),))


def _reduction(function: Any, block: Any, epilogue: Epilogue) -> Reduction:
    axes = [Axis(variable=a.var, extent=int(a.dom.extent)) for a in block.iter_vars if int(a.iter_type) == _SPATIAL]
    taps = [Axis(variable=a.var, extent=int(a.dom.extent)) for a in block.iter_vars if int(a.iter_type) == _REDUCE]
    return Reduction(
        function=function,
        block=block,
        axes=tuple(axes),
        taps=tuple(taps),
        start=block.init.value,
        combined=block.body.value,
        result=block.body.buffer,
        epilogue=epilogue,
    )


def _is_reduction(block: Any) -> bool:
    """Whether the block reduces something to one element for each place, in the order of its axes."""
    if not isinstance(block.body, tirx.BufferStore) or not isinstance(block.init, tirx.BufferStore):
        return False
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    places = [axis.var for axis in block.iter_vars if int(axis.iter_type) == _SPATIAL]
    return _REDUCE in kinds and set(kinds) <= {_SPATIAL, _REDUCE} and _are_same(block.body.indices, places)


def _are_same(indices: Sequence[Any], variables: Sequence[Any]) -> bool:
    return len(indices) == len(variables) and all(i.same_as(v) for i, v in zip(indices, variables, strict=True))
