"""Single kernels as callable machine code on this machine: how schedules are measured."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgetrain.compiler.lower import compile_kernels, scratch_of
from edgetrain.errors import DeviceError
from edgetrain.graph.extract import Aliases, Kernel
from edgetrain.runtime.sources import runtime_text
from edgetrain.targets.device import Codegen
from edgetrain.toolchain.c_compiler import find_compiler, run_command
from edgetrain_tuner.measure.arguments import Array, aligned

_SYMBOL = "measured_kernel"
_LAUNCH = "__TVMBackendParallelLaunch"
_RUNTIME = ("threads.c", "internal.h", "edgetrain.h")
# What the threads call of the rest of the runtime: the text of an error, which nobody reads here.
_DESCRIBE_C = """#include "internal.h"
void edge_describe(const char* what, int system_error) { (void)what, (void)system_error; }
"""
# Symbolic: the parallel launch is ours, not that of TVM's runtime in the same process.
_SHARED = ("-O2", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Wl,-z,noexecstack")


class LoadedKernel:
    """One kernel in a library of its own. It runs on the threads of the `KernelLibrary` that made it."""

    def __init__(self, library: ctypes.CDLL, scratch_bytes: Sequence[int]) -> None:
        self._library = library
        self._scratch = [aligned(size) for size in scratch_bytes]

    def bound(self, arrays: Sequence[Array]) -> Callable[[], None]:
        addresses = [*(array.ctypes.data for array in arrays), *(block.ctypes.data for block in self._scratch)]
        pointers = [ctypes.c_void_p(address) for address in addresses]
        function = self._library[_SYMBOL]

        def run(_kept: object = (arrays, self._scratch)) -> None:
            if function(*pointers) != 0:
                raise RuntimeError("the kernel reported an error")

        return run

    def close(self) -> None:
        """Unloads the code: no call of it may follow."""
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(self._library._handle))


class KernelLibrary:
    """Builds kernels for this machine, as a program's kernels are, and runs them on a program's threads."""

    def __init__(self, codegen: Codegen, *, threads: int, folder: Path) -> None:
        self._codegen = codegen
        self._folder = folder
        self._numbers = itertools.count()
        self._compiler = find_compiler(codegen.triple, cpu=codegen.cpu)
        for name in _RUNTIME:
            (folder / name).write_text(runtime_text(name), encoding="utf-8")
        (folder / "describe.c").write_text(_DESCRIBE_C, encoding="utf-8")
        self._link(("threads.c", "describe.c"), "threads.so")
        self._threads = ctypes.CDLL(str(folder / "threads.so"))
        if self._threads.edge_threads_open(threads) != 0:
            raise DeviceError(f"{threads} threads could not be started")

    def close(self) -> None:
        self._threads.edge_threads_close()

    def build(self, function: Any, aliases: Aliases) -> LoadedKernel:
        """A scheduled PrimFunc as code. Raises what LLVM or the linker has against it."""
        kernel = Kernel(symbol=_SYMBOL, function=function, aliases=aliases)
        scratch_bytes = scratch_of(kernel)
        name = f"kernel{next(self._numbers)}"
        compile_kernels([kernel], self._codegen, self._folder / f"{name}.o")
        self._link((f"{name}.o",), f"{name}.so")
        library = ctypes.CDLL(str(self._folder / f"{name}.so"))
        for suffix in ("o", "so"):
            (self._folder / f"{name}.{suffix}").unlink()
        self._lend_threads(library)
        return LoadedKernel(library, scratch_bytes)

    def _lend_threads(self, library: ctypes.CDLL) -> None:
        """All kernels share one set of threads: those of another would still be looking for work."""
        try:
            launch = ctypes.c_void_p.in_dll(library, _LAUNCH)
        except ValueError:  # a kernel without a parallel loop
            return
        launch.value = ctypes.c_void_p.in_dll(self._threads, _LAUNCH).value

    def _link(self, sources: Sequence[str], out: str) -> None:
        command = [*self._compiler.command, *_SHARED, *sources, "-o", out, "-lm", "-lpthread"]
        run_command(command, self._compiler, self._folder, what=out)
