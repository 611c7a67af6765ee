"""A pass that gives each task of a parallel loop its own cache lines, by placing all of its scratch together.

A rule keeps a part of each buffer for each task. If the parts of different tasks are neighbours, a part that ends
inside a cache line shares it with the next task, and a core's prefetcher reads on into the next task's part. Cache
lines then move from core to core, and a kernel on two cores can take longer than on one. This pass makes one buffer for
each type, with all parts of the first task, then all parts of the second, a little apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgetrain._tvm import PrimFunc, TensorLoad, tirx, tvm, tvm_ffi
from edgetrain_tuner.rules.loops import REGISTERS, position_of

LINE_BYTES = 64
AHEAD_BYTES = 2048  # how far a prefetcher runs ahead of a core that reads on and on: so far tasks are apart


def keep_tasks_apart() -> Any:
    """The pass, for kernels whose buffers have the shapes that they keep, before these are flattened."""

    def rewrite(function: Any, _module: Any, _context: Any) -> Any:
        parts = _parts_of(function.body)
        return function if not parts else _Merged(parts).rewritten(function)

    return tirx.transform.prim_func_pass(rewrite, opt_level=0, name="edgetrain.KeepTasksApart")


def _parts_of(body: Any) -> list[Any]:
    """Buffers that are allocated outside of the one parallel loop and touched at its own number only."""
    loops: list[Any] = []
    tvm_ffi.structural_walk(body, (tirx.For, loops.append))
    tasks = [loop.loop_var for loop in loops if loop.kind == tirx.ForKind.PARALLEL]
    if len(tasks) != 1:
        return []
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (tirx.AllocBuffer, lambda node: found.append(node.buffer)))
    found = [b for b in found if str(b.ty.storage_scope) != REGISTERS and len(b.ty.shape) > 1]

    def touch(buffer: Any, indices: Sequence[Any]) -> None:
        if not indices or not indices[0].same_as(tasks[0]):
            found[:] = [other for other in found if not other.same_as(buffer)]

    visits = [
        (TensorLoad, lambda load: touch(load.source, load.indices)),
        (tirx.BufferStore, lambda store: touch(store.buffer, store.indices)),
    ]
    tvm_ffi.structural_walk(body, visits)
    return found


class _Merged:
    """One buffer for each type among `parts`, and where in a task's share of it each of them begins."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self._starts: list[int] = []
        sizes: dict[str, int] = {}
        for part in parts:
            dtype = str(part.ty.dtype)
            line = LINE_BYTES * 8 // tvm.DataType(dtype).bits
            start = sizes.get(dtype, 0)
            self._starts.append(start)
            sizes[dtype] = start + -(-math.prod(_shape(part)) // line) * line
        tasks = max(int(part.ty.shape[0]) for part in parts)
        self._buffers = {
            dtype: tirx.decl_buffer((tasks, size + AHEAD_BYTES * 8 // tvm.DataType(dtype).bits), dtype, "own")
            for dtype, size in sizes.items()
        }

    def rewritten(self, function: Any) -> Any:
        def on_load(load: Any) -> Any:
            place = self._place(load.source)
            return load if place is None else self._buffer(place)[tuple(self._indices(place, load.indices))]

        def on_store(store: Any) -> Any:
            place = self._place(store.buffer)
            if place is None:
                return store
            return tirx.BufferStore(self._buffer(place), store.value, self._indices(place, store.indices))

        def on_allocation(allocation: Any) -> Any:
            is_part = self._place(allocation.buffer) is not None
            return tirx.Evaluate(tirx.IntImm("int32", 0)) if is_part else allocation

        rewrites = [(TensorLoad, on_load), (tirx.BufferStore, on_store), (tirx.AllocBuffer, on_allocation)]
        body = tvm_ffi.structural_map(function.body, rewrites)
        allocations = [tirx.AllocBuffer(buffer) for buffer in self._buffers.values()]
        return PrimFunc(function.params, tirx.SeqStmt([*allocations, body]), function.ret_type, function.attrs)

    def _place(self, buffer: Any) -> int | None:
        return next((place for place, part in enumerate(self._parts) if buffer.same_as(part)), None)

    def _buffer(self, place: int) -> Any:
        return self._buffers[str(self._parts[place].ty.dtype)]

    def _indices(self, place: int, indices: Sequence[Any]) -> list[Any]:
        task, *rest = indices
        return [task, position_of(rest, _shape(self._parts[place])) + self._starts[place]]


def _shape(part: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in part.ty.shape)[1:]
