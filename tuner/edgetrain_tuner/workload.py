"""What a kernel computes, without its names and its sizes: the key under which schedules of like kernels are found.

A kernel's *class* is the text of its blocks with shapes removed: strides, access maps and whatever is fused stay. Its
*family* is the text of its heaviest block alone, with no constants at all, so that other epilogues, other strides and
other windows are relatives. Both are SHA-256 of text, and so the same in every process and on every machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad

from edgetrain_tuner.cache.entry import Workload

MOST_DIMS = 16
# Constants up to this are strides, taps and padding; larger ones come from shapes. A class that errs is no mistake:
# what is found through it is refitted, checked and raced.
_MOST_KEPT = 8
_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.iter_type
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_NUMBER = re.compile(r"\b\d+(?:\.\d+)?(?:e-?\d+)?\b")
_WORD = re.compile(r"[A-Za-z_]\w*")


def workload_of(function: Any) -> Workload:
    """The key of a kernel before it is scheduled."""
    blocks = _blocks(function)
    if blocks:
        anchor = max(blocks, key=lambda block: (_work(block), _is_reduction(block)))
        texts = [_Writer(keeps_constants=True).block(block) for block in blocks]
        family = _Writer(keeps_constants=False).block(anchor)
        dims = tuple(int(axis.dom.extent) for axis in anchor.iter_vars)
    else:
        texts = [_plain_text(function)]
        family, dims = texts[0], ()
    return Workload(
        class_=_digest(*texts),
        family=_digest(family),
        name=_name(blocks, anchor) if blocks else "loops",
        dims=dims[:MOST_DIMS],
        dtype=str(function.params[-1].ty.dtype),
        operations=_operations(function),
        bytes=sum(_nbytes(parameter.ty) for parameter in function.params),
    )


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _blocks(function: Any) -> list[Any]:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    schedule = s_tir.Schedule(module)
    try:
        root = schedule.get_sblock("root")
    except (s_tir.ScheduleError, tvm.error.InternalError):
        return []
    return [schedule.get(block) for block in schedule.get_child_blocks(root)]


def _work(block: Any) -> int:
    total = 1
    for axis in block.iter_vars:
        total *= int(axis.dom.extent)
    return total


def _is_reduction(block: Any) -> bool:
    return any(int(axis.iter_type) == _REDUCE for axis in block.iter_vars)


def _name(blocks: list[Any], anchor: Any) -> str:
    """For people; not to be matched by."""
    kind = "reduction" if _is_reduction(anchor) else "elementwise"
    if _is_reduction(anchor) and isinstance(anchor.body, tirx.BufferStore):
        products: list[Any] = []
        tvm_ffi.structural_walk(anchor.body.value, (tirx.Mul, products.append))
        loads: list[Any] = []
        tvm_ffi.structural_walk(anchor.body.value, (TensorLoad, loads.append))
        kind = "contraction" if products and len(loads) > 2 else kind
    axes = "".join(_kind(axis) for axis in anchor.iter_vars)
    return f"{kind} {axes}" + (f", {len(blocks)} blocks" if len(blocks) > 1 else "")


def _operations(function: Any) -> int:
    try:
        return int(s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": function})))
    except Exception:  # TVM cannot tell for opaque blocks: what counts there is bytes
        return 0


def _nbytes(ty: Any) -> int:
    total: int = tvm.DataType(str(ty.dtype)).bits // 8
    for extent in ty.shape:
        total *= int(extent)
    return total


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Writes blocks as text; variables and buffers are numbered as they come."""

    keeps_constants: bool
    _numbers: list[Any] = field(default_factory=list)
    _analyzer: Any = field(default_factory=tvm.sym.Analyzer)

    def block(self, block: Any) -> str:
        kinds = "".join(_kind(axis) for axis in block.iter_vars)
        for axis in block.iter_vars:
            self._number(axis.var)
            # An axis of 1 is treated as any other: a batch of one image is no other kernel.
            self._analyzer.bind(axis.var, tvm.ir.Range(0, max(int(axis.dom.extent), 2)))
        parts = [kinds] + [self._node(part) for part in (block.init, block.body) if part is not None]
        return "|".join(parts)

    def _number(self, thing: Any) -> str:
        for number, known in enumerate(self._numbers):
            if known.same_as(thing):
                return f"v{number}"
        self._numbers.append(thing)
        return f"v{len(self._numbers) - 1}"

    def _node(self, node: Any, *, is_bound: bool = False) -> str:
        match node:
            case tirx.IntImm():
                return self._integer(int(node.value), is_bound=is_bound)
            case tirx.FloatImm():
                value = float(node.value)
                return str(value) if self.keeps_constants and value in (0.0, 1.0, -1.0) else "f"
            case tirx.Var():
                return self._number(node)
            case TensorLoad():
                return f"{self._number(node.source)}[{self._all(node.indices)}]"
            case tirx.BufferStore():
                return f"{self._number(node.buffer)}[{self._all(node.indices)}]={self._node(node.value)}"
            case tirx.Add() | tirx.Sub() | tirx.Mul() if not self.keeps_constants:
                parts = [self._node(part) for part in (node.a, node.b) if not isinstance(part, tirx.IntImm)]
                return parts[0] if len(parts) == 1 else f"{type(node).__name__}({','.join(parts)})"
            case Call():
                return f"{getattr(node.op, 'name', 'call')}({self._all(node.args)})"
        return f"{type(node).__name__}({','.join(self._parts(node))})"

    def _parts(self, node: Any) -> Iterator[str]:
        """Of any other node: what it is made of, by the names that TVM's nodes have for it."""
        is_bound = isinstance(node, _COMPARISONS)
        for name in ("a", "b", "condition", "true_value", "false_value", "value", "then_case", "else_case", "body"):
            part = getattr(node, name, None)
            if part is not None:
                yield self._node(part, is_bound=is_bound)
        for name in ("seq", "args"):
            yield from (self._node(part) for part in getattr(node, name, None) or ())
        dtype = getattr(getattr(node, "ty", None), "dtype", None)
        if isinstance(node, tirx.Cast) and dtype is not None:
            yield str(dtype)

    def _all(self, nodes: Any) -> str:
        return ",".join(self._node(self._analyzer.simplify(node)) for node in nodes)

    def _integer(self, value: int, *, is_bound: bool) -> str:
        """What a position is compared with comes from a shape, however small it is."""
        is_kept = self.keeps_constants and not is_bound and abs(value) <= _MOST_KEPT
        return str(value) if is_kept else "#"


def _kind(axis: Any) -> str:
    """S or R; r for a reduction over one element, which makes another kernel of a window of one tap."""
    if int(axis.iter_type) == _SPATIAL:
        return "S"
    return ("r" if int(axis.dom.extent) == 1 else "R") if int(axis.iter_type) == _REDUCE else "?"


def _plain_text(function: Any) -> str:
    """A kernel of plain loops: its script with numbers removed and words numbered as they come."""
    words: dict[str, str] = {}
    without_numbers = _NUMBER.sub("#", str(function.script()))
    return _WORD.sub(lambda found: words.setdefault(found.group(), f"w{len(words)}"), without_numbers)
