"""An object from Zig source: for what Zig's standard library has and C's has not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from edgetrain.errors import DeviceError
from edgetrain.locate import zig_dir
from edgetrain.toolchain.c_compiler import Compiler, Triple, host_triple, run_command, zig_target

_OPTIONS = ("-O", "ReleaseFast", "-fPIC", "-fstrip", "-fsingle-threaded")
_CPU_FACTS = Path("/proc/cpuinfo")
# By architecture: what zig calls a feature that its ciphers use, and what Linux calls it.
_CIPHER_FEATURES: Mapping[str, Mapping[str, str]] = {
    "x86_64": {"aes": "aes", "pclmul": "pclmulqdq", "avx": "avx", "avx2": "avx2", "vaes": "vaes"},
    "aarch64": {"aes": "aes"},
}


def cipher_cpu(triple: Triple) -> str:
    """For zig: the oldest processor of the family, and on this machine its instructions for ciphers.

    For other machines none are assumed: what would not run there is worse than what is slow.
    """
    wanted = _CIPHER_FEATURES.get(triple.architecture, {})
    if triple.architecture != host_triple().architecture:
        return "baseline"
    found = _processor_flags()
    return "".join(("baseline", *(f"+{name}" for name, flag in wanted.items() if flag in found)))


def build_zig_object(triple: Triple, cpu: str, source: str, directory: Path) -> str:
    """Compiles `source` in the directory to an object, and returns its name there. Raises `DeviceError`."""
    name = f"{Path(source).stem}.zig.o"
    cache = str(zig_dir())
    compiler = Compiler(
        command=(sys.executable, "-m", "ziglang"),
        archiver=(),
        version="zig",
        triple=triple,
        environment={"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
    )
    command = (*compiler.command, "build-obj", source, "-target", zig_target(triple), f"-mcpu={cpu}", *_OPTIONS)
    try:
        run_command([*command, f"-femit-bin={name}"], compiler, directory, what=source)
    except DeviceError as error:
        fix = "encrypted pages need zig: `pip install ziglang`"
        raise DeviceError(error.what, why=error.why, fix=fix) from error
    return name


def _processor_flags() -> frozenset[str]:
    """As Linux lists them for the first processor: `flags`, or `Features`. None where it does not say."""
    try:
        lines = _CPU_FACTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = (
        words for name, _, words in (line.partition(":") for line in lines) if name.strip() in ("flags", "Features")
    )
    return frozenset(next(found, "").split())
