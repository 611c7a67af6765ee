"""Makes loops that TVM's rules wrote safe: correct vectors, scratch for each task, bounded code and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.loops import PARALLEL, REGISTERS, SERIAL, VECTORIZED, Loops, is_arithmetic
from edgetrain_tuner.schedule import ScheduleRefusedError


def as_plain_loops(function: Any, machine: Machine) -> Any:
    """Blocks and their buffers as loops, allocations, loads and stores, as our own rules write them."""
    flat = _with_simple_places(_lowered(_with_plain_choices(function), _to_loops()))

    def on_loop(loop: Any) -> Any:
        return _distributed(loop, machine) if loop.kind == PARALLEL else loop

    return _with_body(flat, tvm_ffi.structural_map(flat.body, (tirx.For, on_loop)))


def require_bounded(function: Any, machine: Machine) -> None:
    """Raises `ScheduleRefusedError` where plain loops ask for too much memory, too wide vectors or too much code."""
    limits = machine.limits
    scratch_bytes = sum(_nbytes(buffer.ty) for buffer in _large_buffers(function.body, machine))
    tensor_bytes = sum(_nbytes(parameter.ty) for parameter in function.params)
    most_bytes = max(limits.generated_scratch_bytes, int(tensor_bytes * limits.generated_scratch_share))
    if scratch_bytes > most_bytes:
        raise ScheduleRefusedError(f"it wants {scratch_bytes} bytes of scratch, more than {most_bytes}")
    vectors = [loop for loop in _all(function.body, tirx.For) if loop.kind == VECTORIZED]
    if any(not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) > limits.generated_lanes for loop in vectors):
        raise ScheduleRefusedError(f"a vector has more than {limits.generated_lanes} lanes")
    stores = _all(_lowered(function, _to_straight_code()).body, tirx.BufferStore)
    statements = sum(math.ceil(_lanes(store.value.ty) / machine.lanes) for store in stores)
    if statements > limits.generated_statements:
        raise ScheduleRefusedError(f"unrolled it is {statements} statements, more than {limits.generated_statements}")


def _with_plain_choices(function: Any) -> Any:
    """Vectors in whose loop something is called or chosen become plain loops.

    TVM 0.27 gives wrong numbers for a condition that differs from lane to lane; LLVM vectorises such a loop rightly.
    """

    def on_loop(loop: Any) -> Any:
        if loop.kind != VECTORIZED or is_arithmetic(loop.body):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, SERIAL, loop.body)

    return _with_body(function, tvm_ffi.structural_map(function.body, (tirx.For, on_loop)))


def _with_simple_places(function: Any) -> Any:
    """The indices of the function's own buffers, simplified: on `i * 7 + j - i * 7` TVM 0.27 divides by zero later.

    Those of its parameters stay: as they were fused, they become one sum when a buffer is flattened.
    """
    analyzer = tvm.sym.Analyzer()
    own = [allocation.buffer for allocation in _all(function.body, tirx.AllocBuffer)]

    def on_load(load: Any) -> Any:
        return load.source[tuple(map(analyzer.simplify, load.indices))] if _place(own, load.source) >= 0 else load

    def on_store(store: Any) -> Any:
        if _place(own, store.buffer) < 0:
            return store
        return tirx.BufferStore(store.buffer, store.value, [analyzer.simplify(index) for index in store.indices])

    body = tvm_ffi.structural_map(function.body, [(TensorLoad, on_load), (tirx.BufferStore, on_store)])
    return _with_body(function, body)


def _distributed(loop: Any, machine: Machine) -> Any:
    """The parallel loop; where an iteration needs more than a stack holds, a task for each core with own scratch."""
    large = _large_buffers(loop.body, machine)
    if not large and machine.cores > 1:
        return loop
    jobs = int(loop.extent)
    tasks = min(jobs, machine.cores)
    own = [tirx.decl_buffer((tasks, *buffer.ty.shape), str(buffer.ty.dtype), buffer.name) for buffer in large]

    def job(task: Any, number: Any) -> Any:
        def on_load(load: Any) -> Any:
            place = _place(large, load.source)
            return load if place < 0 else own[place][(task, *load.indices)]

        def on_store(store: Any) -> Any:
            place = _place(large, store.buffer)
            return store if place < 0 else tirx.BufferStore(own[place], store.value, [task, *store.indices])

        def on_allocation(allocation: Any) -> Any:
            return allocation if _place(large, allocation.buffer) < 0 else tirx.Evaluate(tirx.IntImm("int32", 0))

        def on_variable(variable: Any) -> Any:
            return number if variable.same_as(loop.loop_var) else variable

        rewrites = [(TensorLoad, on_load), (tirx.BufferStore, on_store), (tirx.AllocBuffer, on_allocation)]
        return tvm_ffi.structural_map(loop.body, [*rewrites, (tirx.Var, on_variable)])

    loops = Loops(str(loop.loop_var.ty.dtype))
    shared = loops.distribute(jobs, tasks, lambda _: [], job)
    return tirx.SeqStmt([*(tirx.AllocBuffer(buffer) for buffer in own), shared]) if own else shared


def _place(buffers: Sequence[Any], buffer: Any) -> int:
    """Where a buffer is among others; -1 where it is not."""
    return next((place for place, known in enumerate(buffers) if known.same_as(buffer)), -1)


def _large_buffers(body: Any, machine: Machine) -> list[Any]:
    buffers = [allocation.buffer for allocation in _all(body, tirx.AllocBuffer)]
    most = machine.limits.stack_bytes
    return [b for b in buffers if str(b.ty.storage_scope) != REGISTERS and _nbytes(b.ty) > most]


def _to_loops() -> list[Any]:
    s = s_tir.transform
    return [
        s.CanonicalizeLoop(),
        s.LowerInitBlock(),
        s.PlanAndUpdateBufferAllocationLocation(),
        s.ConvertBlocksToOpaque(),
        s.CompactBufferAllocation(),
        s.LowerMatchBuffer(),
        s.LowerOpaqueBlock(),
    ]


def _to_straight_code() -> list[Any]:
    x = tirx.transform
    return [x.FlattenBuffer(), s_tir.transform.StmtSimplify(), x.VectorizeLoop(True), x.UnrollLoop()]


def _lowered(function: Any, passes: Sequence[Any]) -> Any:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    try:
        return tvm.ir.transform.Sequential(passes)(module)["main"]
    except (tvm.error.InternalError, RuntimeError, ValueError) as error:
        raise ScheduleRefusedError("TVM cannot lower its loops") from error


def _with_body(function: Any, body: Any) -> Any:
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def _all(node: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kind, found.append))
    return found


def _lanes(ty: Any) -> int:
    _, _, lanes = str(ty.dtype).partition("x")
    return int(lanes or 1)


def _nbytes(ty: Any) -> int:
    scalar, _, _ = str(ty.dtype).partition("x")
    nbytes: int = tvm.DataType(scalar).bits // 8 * _lanes(ty)
    for extent in ty.shape:
        nbytes *= int(extent)
    return nbytes
