"""Libraries for this machine, for an aarch64 board and for a Cortex-M4, built and taken apart."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import struct
import subprocess
from pathlib import Path

import pytest

from edgetrain.errors import DeviceError
from edgetrain.program.emit_c import emit_driver
from edgetrain.program.library import build_library
from edgetrain.runtime.sources import runtime_text
from edgetrain.toolchain import c_compiler as toolchain
from edgetrain.toolchain.c_compiler import Compiler, parse_triple
from tests.edgetrain.program.tiny_program import (
    ARENA_BYTES,
    KERNELS,
    STEP_PLANS,
    compile_object,
    host_compiler,
    tiny_graph,
    tiny_plan,
)

pytestmark = pytest.mark.slow  # zig builds a C library for each of these machines

CORTEX_M4 = "thumbv7em-none-eabihf"
MACHINES = {"x86_64-linux-gnu": 62, "aarch64-linux-gnu": 183, "armv7-linux-gnueabihf": 40, "riscv64-linux-gnu": 243}


@functools.cache
def zig(triple: str, cpu: str = "") -> Compiler:
    return toolchain._zig_compiler(parse_triple(triple), cpu, None)


def build(compiler: Compiler, out: Path, *, schedule: str = "page", threads: bool = True) -> Path:
    out.mkdir(parents=True)
    kernels = compile_object(compiler, KERNELS, out / "kernels.o")
    driver = emit_driver(tiny_graph(), tiny_plan(STEP_PLANS[schedule]))
    return build_library(driver_c=driver, kernels=kernels, out=out, threads=threads, compiler=compiler)


def machine_of(elf: bytes) -> int:
    assert elf[:4] == b"\x7fELF"
    return int(struct.unpack_from("<H", elf, 18)[0])


@pytest.mark.parametrize(
    ("triple", "cpu", "threads"),
    [("", "", True), ("", "", False), ("x86_64-linux-gnu", "", True), (CORTEX_M4, "cortex-m4", False)],
    ids=["system", "system without threads", "zig", "bare metal"],
)
def test_two_builds_in_different_places_have_the_same_bytes(
    triple: str, cpu: str, threads: bool, tmp_path: Path
) -> None:
    compiler = zig(triple, cpu) if triple else host_compiler()
    first = build(compiler, tmp_path / "one", threads=threads).read_bytes()
    second = build(compiler, tmp_path / "another" / "place", threads=threads).read_bytes()
    assert first == second
    assert str(tmp_path).encode() not in first
    assert str(Path.cwd()).encode() not in first


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_a_board_gets_a_shared_library_of_its_own_machine(triple: str, tmp_path: Path) -> None:
    library = build(zig(triple), tmp_path / "out")
    assert library.name == "libedgetrain_model.so"
    assert machine_of(library.read_bytes()) == MACHINES[triple]


def test_a_library_by_zig_loads_here(tmp_path: Path) -> None:
    host = toolchain.host_triple().text
    library = ctypes.CDLL(str(build(zig(host), tmp_path / "out")))
    assert (ctypes.c_uint64 * 2).in_dll(library, "edge_program")[1] == ARENA_BYTES


def test_a_library_exports_its_interface_and_none_of_its_kernels(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(build(host_compiler(), tmp_path / "out")))
    assert library.edge_step
    for hidden in ("tiny_multiply", "__TVMBackendParallelLaunch"):
        with pytest.raises(AttributeError):
            library[hidden]


def link_for_cortex_m4(library: Path, application: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """An application that uses the archive, as far as the linker: nothing here can run it."""
    (directory / "main.c").write_text(application)
    (directory / "edgetrain.h").write_text(runtime_text("edgetrain.h"))
    (directory / "memory.c").write_text(
        "#include <stddef.h>\n"
        "void* memcpy(void* to, const void* from, size_t n) {\n"
        "  for (size_t i = 0; i < n; i++) ((volatile char*)to)[i] = ((const char*)from)[i];\n"
        "  return to;\n}\n"
    )
    compiler = zig(CORTEX_M4, "cortex-m4")
    options = ["-std=c11", "-O2", "-DEDGE_BARE_METAL", "-nostartfiles", "-Wl,-e,main", "-fno-unwind-tables"]
    return subprocess.run(
        [*compiler.command, *options, "main.c", "memory.c", str(library), "-o", "application.elf"],
        cwd=directory,
        env={**os.environ, **compiler.environment},
        capture_output=True,
        text=True,
        check=False,
    )


_APPLICATION = f"""
#include "edgetrain.h"
static uint8_t arena[{ARENA_BYTES}] __attribute__((aligned(EDGE_ARENA_ALIGNMENT)));
int main(void) {{ return edge_open(arena, sizeof arena, 1, NULL) || edge_step(); }}
"""
_CALLBACKS = """
int32_t edge_page_out(uint32_t slot, const void* from, size_t nbytes) { (void)slot, (void)from; return nbytes == 0; }
int32_t edge_page_in(uint32_t slot, void* to, size_t nbytes) { (void)slot, (void)to; return nbytes == 0; }
"""


@pytest.mark.parametrize(
    ("schedule", "callbacks", "links"),
    [("keep", "", True), ("page", "", False), ("page", _CALLBACKS, True)],
    ids=["no paging", "paging without callbacks", "paging with callbacks"],
)
def test_a_cortex_m4_application_must_supply_callbacks_exactly_if_its_program_pages(
    schedule: str, callbacks: str, links: bool, tmp_path: Path
) -> None:
    library = build(zig(CORTEX_M4, "cortex-m4"), tmp_path / "out", schedule=schedule)
    assert library.name == "libedgetrain_model.a"
    assert library.read_bytes().startswith(b"!<arch>\n")
    done = link_for_cortex_m4(library, _APPLICATION + callbacks, tmp_path)
    if links:
        assert done.returncode == 0, done.stderr
        assert machine_of((tmp_path / "application.elf").read_bytes()) == 40
    else:
        assert done.returncode != 0
        assert set(re.findall(r"undefined symbol: (\w+)", done.stderr)) == {"edge_page_out", "edge_page_in"}


def test_a_driver_that_does_not_compile_is_reported_with_the_compilers_words(tmp_path: Path) -> None:
    kernels = compile_object(host_compiler(), KERNELS, tmp_path / "kernels.o")
    with pytest.raises(DeviceError, match=r"building driver\.c, .* failed") as caught:
        build_library(driver_c="int f(void) { return nonsense; }\n", kernels=kernels, out=tmp_path)
    assert "nonsense" in caught.value.why
    assert str(tmp_path) not in str(caught.value)


def test_a_missing_kernel_is_found_when_the_library_is_built(tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("typedef int nothing;\n")
    kernels = compile_object(host_compiler(), tmp_path / "empty.c", tmp_path / "kernels.o")
    driver = emit_driver(tiny_graph(), tiny_plan(STEP_PLANS["keep"]))
    with pytest.raises(DeviceError) as caught:
        build_library(driver_c=driver, kernels=kernels, out=tmp_path)
    assert "tiny_multiply" in caught.value.why
