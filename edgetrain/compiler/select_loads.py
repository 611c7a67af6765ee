"""A pass that loads both operands of a `Select` first, where both are inside their buffers: no branch is needed.

TVM rewrites `Select(won, dy[i], 0)` to a branch round the load, since it does not know that `dy[i]` exists whatever
`won` is. LLVM vectorises such a loop with masked loads where the target has them, and badly or not at all elsewhere.
Where the index is inside the buffer in every iteration of the loops around it, there is nothing to guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from edgetrain._tvm import Call, PrimFunc, TensorLoad, tirx, tvm, tvm_ffi

_BRANCH = "if_then_else"


def load_before_selecting() -> Any:
    """The pass, for kernels whose loops are known."""

    def rewrite(function: Any, _module: Any, _context: Any) -> Any:
        analyzer = _knowing_loops_of(function.body)

        body = tvm_ffi.structural_map(function.body, (tirx.BufferStore, partial(_loaded_first, analyzer=analyzer)))
        return PrimFunc(function.params, body, function.ret_type, function.attrs)

    return tirx.transform.prim_func_pass(rewrite, opt_level=0, name="edgetrain.LoadBeforeSelecting")


def _knowing_loops_of(body: Any) -> Any:
    analyzer = tvm.sym.Analyzer()

    def bind(loop: Any) -> None:
        if isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm):
            analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    tvm_ffi.structural_walk(body, (tirx.For, bind))
    return analyzer


def _loaded_first(store: Any, analyzer: Any) -> Any:
    """The store with what its choices read bound to names before it.

    Not in an expression of its own: common parts that TVM finds later end up outside of where such names are known.
    """
    read = [load for load in _read_by_choices(store.value) if _is_inside(load, analyzer)]
    named: list[tuple[Any, Any]] = []
    for load in read:
        if not any(tvm_ffi.structural_equal(load, other) for other, _ in named):
            named.append((load, tirx.Var("read", load.ty)))

    def on_load(load: Any) -> Any:
        return next((name for other, name in named if tvm_ffi.structural_equal(load, other)), load)

    if not named:
        return store
    value = tvm_ffi.structural_map(store.value, (TensorLoad, on_load))
    bound = [tirx.Bind(name, load) for load, name in named]
    return tirx.SeqStmt([*bound, tirx.BufferStore(store.buffer, value, store.indices)])


def _read_by_choices(value: Any) -> list[Any]:
    """The loads on either side of a Select that no branch protects."""
    selects: list[Any] = []
    tvm_ffi.structural_walk(value, (tirx.Select, selects.append))
    if not selects:
        return []
    sides = [side for select in selects for side in (select.true_value, select.false_value)]
    branches: list[Any] = []
    tvm_ffi.structural_walk(value, (Call, branches.append))
    protected = [side for call in branches if _is_branch(call) for side in call.args[1:]]
    guarded = _loads(protected)
    return [load for load in _loads(sides) if not any(load.same_as(other) for other in guarded)]


def _is_branch(call: Any) -> bool:
    return str(getattr(call.op, "name", "")).endswith(_BRANCH)


def _loads(expressions: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for expression in expressions:
        tvm_ffi.structural_walk(expression, (TensorLoad, found.append))
    return found


def _is_inside(load: Any, analyzer: Any) -> bool:
    """Whether the load's place is in its buffer whatever the loops' variables are. Vectors are left as they are."""
    if "x" in str(load.ty.dtype):
        return False
    pairs = zip(load.indices, load.source.ty.shape, strict=True)
    return all(analyzer.can_prove(index >= 0) and analyzer.can_prove(index < extent) for index, extent in pairs)
