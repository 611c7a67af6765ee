"""A builder for tests: kernels compiled by TVM itself. Some schedules make it corrupt, crash or hang.

Run as a program it is a measuring process with that builder.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.arguments import Array
from edgetrain_tuner.measure.bench import Aliases, Bench
from edgetrain_tuner.measure.serve import serve

AVX2 = Machine(vector_bits=256, vector_registers=16, cores=1)


class Compiled:
    def __init__(self, function: Any, spoil: Callable[[Array], None] | None) -> None:
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        self._module = tvm.compile(module, target={"kind": "llvm"})
        self._spoil = spoil

    def bound(self, arrays: Sequence[Array]) -> Callable[[], None]:
        def run() -> None:
            tensors = [tvm.runtime.tensor(array) for array in arrays]
            self._module["main"](*tensors)
            arrays[-1][...] = tensors[-1].numpy()
            if self._spoil is not None:
                self._spoil(arrays[-1])

        return run

    def close(self) -> None:
        """Python lets go of it."""


def build(function: Any, _aliases: Aliases) -> Compiled:
    return Compiled(function, None)


def misbehaving(function: Any, aliases: Aliases) -> Compiled:
    """A tile of 2 rows computes nonsense, of 3 never ends, of 4 ends the process, of 5 does not compile."""
    match _rows(function):
        case 2:
            return Compiled(function, _spoil)
        case 3:
            threading.Event().wait()
        case 4:
            os._exit(9)
        case 5:
            raise ValueError("no such instruction")
    return build(function, aliases)


def _rows(function: Any) -> int:
    """Rows of 16 elements in the tile of sums; 0 without one."""
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, found.append))
    sizes = [int(node.buffer.ty.shape[0]) for node in found if str(node.buffer.name) == "sums"]
    return sizes[0] // 16 if sizes else 0


def _spoil(array: Array) -> None:
    array.flat[array.size // 2] += 1.0


if __name__ == "__main__":
    json.loads(sys.stdin.readline())
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(Bench(misbehaving, AVX2), sys.stdin, channel)
