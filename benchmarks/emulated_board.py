"""An emulated Cortex-M board without an operating system: links firmware for it and runs it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from edgetrain.toolchain.c_compiler import Compiler

FILES = Path(__file__).parent / "emulated"
EMULATOR, PACKAGE = "qemu-system-arm", "qemu-system-arm"
FIRMWARE = "firmware.elf"
_MACHINES = {"cortex-m4": "mps2-an386", "cortex-m7": "mps2-an500", "cortex-m55": "mps3-an547"}
TIMEOUT_S = 600  # zig builds a C library first, and the machine may be busy


def link_firmware(
    compiler: Compiler, folder: Path, sources: Sequence[str | Path], *options: str, ram_bytes: int, stack_bytes: int
) -> subprocess.CompletedProcess[str]:
    """Links `FIRMWARE` in the folder, from the sources and what starts them, into so much RAM."""
    script = (FILES / "cortex_m.ld").read_text()
    script = script.replace("RAM_BYTES", str(ram_bytes)).replace("STACK_BYTES", str(stack_bytes))
    (folder / "firmware.ld").write_text(script)
    fixed = ["-std=gnu11", "-O2", "-DEDGE_BARE_METAL", "-I.", f"-I{FILES}", "-Wl,-e,reset", "-Wl,-T,firmware.ld"]
    files = [str(FILES / "cortex_m_boot.c"), *map(str, sources)]
    command = [*compiler.command, *fixed, *options, *files, "-o", FIRMWARE]
    environment = {"PATH": "/usr/bin:/bin", **compiler.environment}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def run_firmware(emulator: str, cpu: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Starts the folder's `FIRMWARE`; it reads and writes files there, and prints to standard error."""
    machine = ["-M", _MACHINES[cpu], "-nographic", "-monitor", "none", "-serial", "null"]
    semihosting = ["-semihosting-config", "enable=on,target=native"]
    return subprocess.run(
        [emulator, *machine, *semihosting, *options, "-kernel", FIRMWARE],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
