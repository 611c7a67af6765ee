"""What each task of a parallel loop keeps lies in lines of the cache that no other task touches."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain._tvm import PrimFunc, ir, tirx, tvm, tvm_ffi
from edgetrain.compiler.lower import compile_kernels, scratch_of
from edgetrain.compiler.task_scratch import AHEAD_BYTES, LINE_BYTES, keep_tasks_apart
from edgetrain.graph.extract import Kernel
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain_tuner.rules.loops import PARALLEL, Loops, sequence
from tests.edgetrain.processors import processor

pytestmark = pytest.mark.compile

ROWS, WIDTH = 6, 21
_LOOPS = Loops("int32")


def _doubled_sums(tasks: int, *, apart: bool = True) -> Any:
    """y[r] = sum of 2 x[r, :], through two buffers with a part for each task, or for all of them together."""
    x = tirx.decl_buffer((ROWS, WIDTH), "float32", "x")
    y = tirx.decl_buffer((ROWS,), "float32", "y")
    doubled = tirx.decl_buffer((tasks, 3, WIDTH // 3), "float32", "doubled")
    count = tirx.decl_buffer((tasks, 2), "int32", "count")
    share = ROWS // tasks

    def task(number: Any) -> Any:
        own = number if apart else _LOOPS.number(0)

        def row(index: Any) -> Any:
            at = number * share + index
            double = _LOOPS.nest(
                "double",
                (3, WIDTH // 3),
                lambda i: tirx.BufferStore(
                    doubled, x[at, i[0] * (WIDTH // 3) + i[1]] * tirx.FloatImm("float32", 2.0), [own, *i]
                ),
            )
            begin = [
                tirx.BufferStore(y, tirx.FloatImm("float32", 0.0), [at]),
                tirx.BufferStore(count, _LOOPS.number(0), [own, _LOOPS.number(1)]),
            ]

            def add(i: list[Any]) -> Any:
                return sequence(
                    tirx.BufferStore(count, count[own, 1] + 1, [own, _LOOPS.number(1)]),
                    tirx.BufferStore(y, y[at] + doubled[(own, *i)], [at]),
                )

            return sequence(double, *begin, _LOOPS.nest("add", (3, WIDTH // 3), add))

        return _LOOPS.loop("row", share, row)

    loop = _LOOPS.loop("task", tasks, task, PARALLEL if tasks > 1 else tirx.ForKind.SERIAL)
    body = sequence(tirx.AllocBuffer(doubled), tirx.AllocBuffer(count), loop)
    return PrimFunc([x, y], body, ir.PrimType("int32"), None)


def _allocations(function: Any) -> list[Any]:
    module = keep_tasks_apart()(tvm.IRModule({"k": function.with_attr("global_symbol", "k")}))
    found: list[Any] = []
    tvm_ffi.structural_walk(module["k"].body, (tirx.AllocBuffer, lambda node: found.append(node.buffer)))
    return found


def test_all_parts_of_a_task_lie_together_in_whole_lines_and_tasks_apart() -> None:
    function = _doubled_sums(2)
    shapes = {str(b.ty.dtype): [int(extent) for extent in b.ty.shape] for b in _allocations(function)}
    ahead = AHEAD_BYTES // 4
    assert shapes == {"float32": [2, 32 + ahead], "int32": [2, 16 + ahead]}  # 21 and 2 elements, to the end of a line
    sizes = [2 * (lines * LINE_BYTES + AHEAD_BYTES) for lines in (2, 1)]
    assert scratch_of(Kernel(symbol="k", function=function)) == tuple(sizes)


@pytest.mark.parametrize(("tasks", "apart"), [(1, True), (2, False)])
def test_scratch_of_one_task_and_scratch_that_all_share_stay_as_they_are(tasks: int, apart: bool) -> None:
    shapes = [[int(extent) for extent in buffer.ty.shape] for buffer in _allocations(_doubled_sums(tasks, apart=apart))]
    assert shapes == [[tasks, 3, 7], [tasks, 2]]


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_the_numbers_are_the_same(tasks: int, tmp_path: Path) -> None:
    kernel = Kernel(symbol="k", function=_doubled_sums(tasks))
    compile_kernels([kernel], processor(cores=tasks), tmp_path / "k.o")
    library = tmp_path / "k.so"
    serial = tmp_path / "serial.c"
    serial.write_text(_SERIAL_LAUNCH_C, encoding="utf-8")
    command = [*find_compiler().command, "-shared", "-fPIC", "-o", str(library), str(serial), str(tmp_path / "k.o")]
    subprocess.run([*command, "-lm"], check=True)
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH), dtype=np.float32)
    y = np.zeros(ROWS, np.float32)
    scratch = [np.zeros(size, np.uint8) for size in scratch_of(kernel)]
    addresses = [x.ctypes.data, y.ctypes.data, *(block.ctypes.data for block in scratch)]
    ctypes.CDLL(str(library)).k(*map(ctypes.c_void_p, addresses))
    np.testing.assert_allclose(y, 2 * x.sum(axis=1), rtol=1e-5)


_SERIAL_LAUNCH_C = """
#include <stddef.h>
typedef struct { void* sync; int tasks; } environment;
typedef int (*lambda)(int, environment*, void*);
static int launch(lambda run, void* closure, int tasks) {
  environment all = {NULL, tasks > 0 ? tasks : 1};
  for (int task = 0; task < all.tasks; task++) {
    int status = run(task, &all, closure);
    if (status != 0) return status;
  }
  return 0;
}
int (*const __TVMBackendParallelLaunch)(lambda, void*, int) = launch;
"""
