"""Many kernels in one executable for one device: what each computes there, in one run of an emulator."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import emulated_board as board
from edgetrain.compiler.lower import compile_kernels, scratch_of
from edgetrain.graph.extract import Kernel
from edgetrain.graph.ir import DTYPE_BYTES
from edgetrain.runtime.sources import runtime_text
from edgetrain.targets.device import Codegen
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from tests.edgetrain.compiler.kernel_case import Array, KernelCase

STACK_BYTES = 64 * 1024
RAM_BYTES = 448 * 1024  # of the smallest board
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What code is generated for, and what runs it: a command, or a board of `emulated_board`."""

    name: str
    machine: Machine
    codegen: Codegen
    emulator: str
    package: str  # of Debian, that brings the emulator
    options: tuple[str, ...] = ()
    is_board: bool = False


@dataclass(frozen=True, kw_only=True)
class Computed:
    """The rule that wrote each kernel, and what it computed, both in the order of the cases."""

    rules: tuple[str, ...]
    outputs: tuple[tuple[Array, ...], ...]


def compute_all(cases: Sequence[KernelCase], device: Device, emulator: str, folder: Path) -> Computed:
    """Schedules, compiles and links every case's kernel, and runs them all once."""
    written = [rules.scheduled(case.function, device.machine) for case in cases]
    kernels = [
        Kernel(symbol=f"kernel{n}", function=function, aliases=case.aliases)
        for n, (case, (_, function)) in enumerate(zip(cases, written, strict=True))
    ]
    compile_kernels(kernels, device.codegen, folder / "kernels.o")
    places = [_Places.of(case, kernel) for case, kernel in zip(cases, kernels, strict=True)]
    (folder / "kernels.c").write_text(_calls(places, threads=device.machine.cores), encoding="utf-8")
    (folder / "inputs.bin").write_bytes(b"".join(a.tobytes() for case in cases for a in case.arrays()))
    run = _run_on_board if device.is_board else _run_on_linux
    stream = run(device, emulator, folder)
    return Computed(rules=tuple(schedule.rule for schedule, _ in written), outputs=tuple(_read(stream, cases)))


def _read(stream: bytes, cases: Sequence[KernelCase]) -> list[tuple[Array, ...]]:
    place, found = 0, []
    for case in cases:
        outputs = []
        for shape, dtype in _types(case)[len(case.inputs) :]:
            count = prod(shape)
            outputs.append(np.frombuffer(stream, dtype, count, place).reshape(shape))
            place += count * DTYPE_BYTES[dtype]
        found.append(tuple(outputs))
    assert place == len(stream)
    return found


def _types(case: KernelCase) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and element types of a kernel's parameters."""
    parameters: list[Any] = list(case.function.params)
    return [(tuple(int(extent) for extent in p.ty.shape), str(p.ty.dtype)) for p in parameters]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where a kernel's arguments lie: offset and size of each of its inputs and outputs, and offsets of its scratch."""

    symbol: str
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    scratch: tuple[int, ...]
    end: int

    @staticmethod
    def of(case: KernelCase, kernel: Kernel) -> _Places:
        sizes = [prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in _types(case)]
        own = {written: read for read, written in case.aliases}
        offsets: list[int] = []
        end = 0
        for number, size in enumerate((*sizes, *scratch_of(kernel))):
            if number in own:
                offsets.append(offsets[own[number]])
                continue
            offsets.append(end)
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        placed = list(zip(offsets, sizes, strict=False))
        count = len(case.inputs)
        return _Places(
            symbol=kernel.symbol,
            inputs=tuple(placed[:count]),
            outputs=tuple(placed[count:]),
            scratch=tuple(offsets[len(sizes) :]),
            end=end,
        )


def _calls(kernels: Sequence[_Places], *, threads: int) -> str:
    """The C text of `run_kernels`. Memory is filled with NaNs first: an element that nobody writes shows."""
    lines = [
        '#include "kernel_stream.h"',
        "#include <stdint.h>",
        "extern void* memset(void* to, int byte, size_t count);",
        f"static uint8_t memory[{max(k.end for k in kernels)}] __attribute__((aligned({_ALIGNMENT})));",
    ]
    for k in kernels:
        pointers = [*(offset for offset, _ in (*k.inputs, *k.outputs)), *k.scratch]
        lines += [
            f"extern int32_t {k.symbol}({', '.join(['void*'] * len(pointers))});",
            f"static int run_{k.symbol}(void) {{",
            "  memset(memory, 0xFF, sizeof memory);",
            *(f"  if (take(memory + {offset}, {size})) return 1;" for offset, size in k.inputs),
            f"  if ({k.symbol}({', '.join(f'memory + {offset}' for offset in pointers)}) != 0) return 1;",
            *(f"  if (give(memory + {offset}, {size})) return 1;" for offset, size in k.outputs),
            "  return 0;",
            "}",
        ]
    lines += ["extern int32_t edge_threads_open(int32_t threads);", "int run_kernels(void) {"]
    lines += [f"  if (edge_threads_open({threads}) != 0) return -1;"] if threads > 1 else []
    lines += [f"  if (run_{k.symbol}()) return {number};" for number, k in enumerate(kernels, 1)]
    return "\n".join([*lines, "  return 0;", "}", ""])


def _run_on_linux(device: Device, emulator: str, folder: Path) -> bytes:
    architecture = device.codegen.triple.partition("-")[0]
    compiler = find_compiler(f"{architecture}-linux-musl")
    sources = ["kernels.c", "kernels.o", str(board.FILES / "linux_stream.c")]
    if device.machine.cores > 1:
        sources += _threads(folder)
    command = [*compiler.command, "-static", "-O1", f"-I{board.FILES}", *sources, "-o", "kernels", "-lm"]
    environment = {"PATH": "/usr/bin:/bin", **compiler.environment}
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    with (folder / "inputs.bin").open("rb") as given:
        command = [emulator, *device.options, "./kernels"]
        done = subprocess.run(command, cwd=folder, stdin=given, capture_output=True, timeout=board.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _threads(folder: Path) -> list[str]:
    """The runtime's threads, written to the folder, with what they call of the rest of it."""
    for name in ("threads.c", "internal.h", "edgetrain.h"):
        (folder / name).write_text(runtime_text(name), encoding="utf-8")
    silent = '#include "internal.h"\nvoid edge_describe(const char* what, int error) { (void)what, (void)error; }\n'
    (folder / "describe.c").write_text(silent, encoding="utf-8")
    return ["threads.c", "describe.c"]


def _run_on_board(device: Device, emulator: str, folder: Path) -> bytes:
    compiler = find_compiler(device.codegen.triple, cpu=device.codegen.cpu)
    sources: list[str | Path] = [board.FILES / "cortex_m_stream.c", "kernels.c", "kernels.o"]
    built = board.link_firmware(compiler, folder, sources, ram_bytes=RAM_BYTES, stack_bytes=STACK_BYTES)
    assert built.returncode == 0, built.stderr
    done = board.run_firmware(emulator, device.codegen.cpu, folder, *device.options)
    assert done.returncode == 0, done.stderr
    return (folder / "outputs.bin").read_bytes()
