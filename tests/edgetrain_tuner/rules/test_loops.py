from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from edgetrain_tuner.rules.loops import Loops


def _done_by(jobs: int, tasks: int, *, kinds: int = 1, blocks: int = 1) -> list[tuple[int, int]]:
    """Task and number of every job that the loops run, in order, by walking over them."""
    loops = Loops("int32")

    def job(task: Any, which: Any) -> Any:
        return tirx.Evaluate(tirx.call_extern("int32", "job", task, which))

    def run(node: Any, values: dict[Any, int]) -> list[tuple[int, int]]:
        match node:
            case tirx.For():
                rounds = range(_value(node.extent, values))
                return [done for n in rounds for done in run(node.body, {**values, node.loop_var: n})]
            case tirx.SeqStmt():
                return [done for part in node.seq for done in run(part, values)]
            case tirx.IfThenElse():
                return run(node.then_case, values) if _value(node.condition, values) else []
            case tirx.Evaluate():
                *_, task, which = node.value.args
                return [(_value(task, values), _value(which, values))]
        raise AssertionError(f"{type(node)} is not expected here")

    return run(loops.distribute(jobs, tasks, lambda _: [], job, kinds=kinds, blocks=blocks, most_uneven=1.1), {})


def _value(expression: Any, values: dict[Any, int]) -> int:
    def on_variable(variable: Any) -> Any:
        known = [value for name, value in values.items() if name.same_as(variable)]
        return tirx.IntImm("int32", known[0]) if known else variable

    return int(tvm.sym.Analyzer().simplify(tvm_ffi.structural_map(expression, (tirx.Var, on_variable))))


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize(("jobs", "kinds", "blocks"), [(7, 1, 1), (12, 4, 1), (12, 4, 3), (16, 4, 2), (4, 4, 1)])
def test_every_job_is_done_once(jobs: int, kinds: int, blocks: int, tasks: int) -> None:
    done = _done_by(jobs, tasks, kinds=kinds, blocks=blocks)
    assert sorted(number for _, number in done) == list(range(jobs))
    assert max(Counter(task for task, _ in done).values()) == -(-jobs // tasks)


@pytest.mark.parametrize(("jobs", "kinds", "blocks"), [(112, 4, 1), (24, 4, 3), (16, 4, 2), (32, 4, 8)])
def test_a_task_has_the_same_places_of_all_kinds(jobs: int, kinds: int, blocks: int) -> None:
    of_a_kind = jobs // kinds
    places: dict[int, set[int]] = {}
    for task, number in _done_by(jobs, 2, kinds=kinds, blocks=blocks):
        places.setdefault(number % of_a_kind, set()).add(task)
    assert all(len(tasks) == 1 for tasks in places.values())


def test_a_task_keeps_to_its_own_blocks_where_all_get_as_many() -> None:
    assert {(task, number % 2) for task, number in _done_by(16, 2, kinds=4, blocks=2)} == {(0, 0), (1, 1)}


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 21])
def test_elements_are_dealt_to_their_phases_by_vectors(count: int, stride: int) -> None:
    loops = Loops("int32")
    source, target = (tirx.decl_buffer((count * stride,), "float32", name) for name in ("source", "target"))

    def write(phase: int, at: Any, value: Any) -> Any:
        return tirx.BufferStore(target, value, [at + phase * count])

    body = loops.deinterleave(count, 8, stride, lambda at: source[at], write)
    read, written = np.arange(count * stride, dtype=np.float32), np.zeros(count * stride, np.float32)
    function = tirx.PrimFunc([source, target], body).with_attr("global_symbol", "dealt")
    arrays = [tvm.runtime.tensor(array) for array in (read, written)]
    tvm.compile(tvm.IRModule({"dealt": function}), target="llvm")["dealt"](*arrays)
    expected = read.reshape(count, stride).T.ravel()
    assert np.array_equal(arrays[1].numpy(), expected)
