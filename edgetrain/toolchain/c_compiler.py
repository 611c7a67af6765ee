"""A C compiler for every target, found or brought along.

This machine's programs are built by the system's `cc` where it works; everything else by `zig cc`, which pip installs
and which brings the headers and libraries of its targets along.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgetrain.errors import DeviceError
from edgetrain.files.scratch import scratch_folder
from edgetrain.locate import zig_dir

log = logging.getLogger(__name__)

# glibc of the oldest system we load into: JetPack 4 and Debian 10 are newer. riscv64 begins with it.
_GLIBC = "2.27"
_ANDROID_API = 24  # Android 7: the first whose libc has all that the pager calls

LIBRARIES = ("-lm", "-lpthread")

_TIMEOUT_S = 600
_ERROR_LINES = 8

# zig names the family; the version comes with the CPU.
_ZIG_FAMILIES: Mapping[str, str] = {"thumb": "thumb", "armv": "arm"}
_MACHINES: Mapping[str, str] = {"arm64": "aarch64"}  # what some kernels answer -> what LLVM calls it
# A static program needs a C library that may be linked so, and that any Linux or Android can start.
_STATIC: Mapping[str, str] = {"gnueabihf": "musleabihf", "gnueabi": "musleabi", "androideabi": "musleabi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Triple:
    """The parts of an LLVM triple that decide how a library is built."""

    text: str
    architecture: str
    system: str  # "linux", or "none" without an operating system
    environment: str  # "gnu", "musl", "eabihf", "android", ...

    @property
    def is_bare_metal(self) -> bool:
        return self.system == "none"

    @property
    def is_android(self) -> bool:
        return self.environment.startswith("android")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A command that compiles C for one triple, and whose version belongs in a cache key."""

    command: tuple[str, ...]
    archiver: tuple[str, ...]
    version: str
    triple: Triple
    environment: Mapping[str, str]  # added to the process's own


def find_compiler(triple: str | None = None, *, cpu: str = "", zig_cache: Path | None = None) -> Compiler:
    """The compiler for `triple`, an LLVM triple; none, or an empty one, is this machine.

    `cpu` matters on bare metal only: the generated code is calls, and a shared library should load on the whole family.
    `zig_cache` is where zig keeps what it builds of its own libraries; without it, a directory of
    the user's cache. Raises `DeviceError` when nothing can compile for the target.
    """
    target = parse_triple(triple) if triple else host_triple()
    if target.is_android:
        return _android_compiler(target)
    if _same_machine(target, host_triple()):
        system = _system_compiler(target)
        if system is not None:
            return system
    return _zig_compiler(target, cpu, zig_cache)


def parse_triple(text: str) -> Triple:
    """`aarch64-linux-gnu` and `aarch64-unknown-linux-gnu` alike. Raises `DeviceError` for what is not a triple."""
    parts = [part for part in text.split("-") if part not in ("unknown", "pc")]
    match parts:
        case [architecture, "linux", environment]:
            return Triple(text=text, architecture=architecture, system="linux", environment=environment)
        case [architecture, "none", *environment] if len(environment) <= 1:
            return Triple(text=text, architecture=architecture, system="none", environment="".join(environment))
    raise DeviceError(
        f"`{text}` is not a triple edgetrain can build for",
        why="it builds for Linux and for bare metal",
        fix="write it like `aarch64-linux-gnu`, `x86_64-linux-musl` or `thumbv7em-none-eabihf`",
    )


def static_triple(triple: str) -> str:
    """The triple of a program without libraries of its own for whatever runs `triple`."""
    parsed = parse_triple(triple)
    return f"{parsed.architecture}-linux-{_STATIC.get(parsed.environment, 'musl')}"


def host_triple() -> Triple:
    """This machine, as far as building for it is concerned."""
    machine = platform.machine()
    architecture = _MACHINES.get(machine, machine)
    return parse_triple(f"{architecture}-linux-gnu")


def _same_machine(one: Triple, other: Triple) -> bool:
    return (one.architecture, one.system, one.environment) == (other.architecture, other.system, other.environment)


def _system_compiler(triple: Triple) -> Compiler | None:
    """`cc`, if it is there and links a shared library: an image may hold a compiler without libc's headers."""
    path, archiver = shutil.which("cc"), shutil.which("ar")
    if path is None or archiver is None:
        return None
    with scratch_folder("cc") as name:
        (Path(name) / "probe.c").write_text("#include <math.h>\nfloat edge_probe(float x) { return expf(x); }\n")
        command = [path, "-fPIC", "-shared", "probe.c", "-o", "probe.so", *LIBRARIES]
        probe = _ended(command, {}, directory=Path(name))
    if probe.returncode != 0:
        return None
    version = _first_line([path, "--version"], {})
    return Compiler(command=(path,), archiver=(archiver,), version=version, triple=triple, environment={})


def _android_compiler(triple: Triple) -> Compiler:
    """The NDK's clang: zig brings no Android libc, and Google's may not be passed on."""
    clang = f"{triple.architecture}-linux-{triple.environment}{_ANDROID_API}-clang"
    path, archiver = shutil.which(clang), shutil.which("llvm-ar")
    if path is None or archiver is None:
        raise DeviceError(
            f"no compiler for `{triple.text}`",
            why=f"`{clang}` and `llvm-ar` of the Android NDK are not on the path",
            fix="install the NDK and add its `toolchains/llvm/prebuilt/*/bin` to PATH",
        )
    version = _first_line([path, "--version"], {})
    return Compiler(command=(path,), archiver=(archiver,), version=version, triple=triple, environment={})


def _zig_compiler(triple: Triple, cpu: str, zig_cache: Path | None) -> Compiler:
    cache = str(zig_cache or zig_dir())
    environment = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    zig = (sys.executable, "-m", "ziglang")
    try:
        version = _first_line([*zig, "version"], environment)
    except DeviceError as error:
        raise DeviceError(
            f"no C compiler for `{triple.text}`", why=error.why, fix="`pip install ziglang`, which brings one"
        ) from error
    command = (*zig, "cc", "-target", zig_target(triple), f"-mcpu={_zig_cpu(triple, cpu)}")
    return Compiler(
        command=command, archiver=(*zig, "ar"), version=f"zig {version}", triple=triple, environment=environment
    )


def zig_target(triple: Triple) -> str:
    """What zig calls it."""
    architecture = next(
        (family for prefix, family in _ZIG_FAMILIES.items() if triple.architecture.startswith(prefix)),
        triple.architecture,
    )
    if triple.is_bare_metal:
        environment = triple.environment if triple.environment.startswith("eabi") else "none"
        return f"{architecture}-freestanding-{environment}"
    glibc = f".{_GLIBC}" if triple.environment.startswith("gnu") else ""
    return f"{architecture}-linux-{triple.environment}{glibc}"


def _zig_cpu(triple: Triple, cpu: str) -> str:
    if not triple.is_bare_metal or not cpu:
        return "baseline"
    name = cpu.replace("-", "_")
    # zig's cortex_m4 and cortex_m7 are the chips without the optional FPU: the objects would be marked soft-float and
    # not link with hard-float kernels.
    return f"{name}+vfp4d16sp" if triple.environment == "eabihf" else name


def run_command(command: Sequence[str], compiler: Compiler, directory: Path, *, what: str) -> None:
    environment = {**os.environ, **compiler.environment}
    try:
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"building {what} for `{compiler.triple.text}` failed", why=str(error)) from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()][:_ERROR_LINES]
        raise DeviceError(
            f"building {what} for `{compiler.triple.text}` failed",
            why=f"{compiler.version} said:\n" + "\n".join(f"  {line}" for line in lines),
            fix="if a header or library is missing, install it (Debian: `libc6-dev`); otherwise report this as a bug",
        )


def _first_line(command: Sequence[str], environment: Mapping[str, str]) -> str:
    done = _ended(command, environment)
    if done.returncode != 0 or not done.stdout.strip():
        raise DeviceError(f"`{' '.join(command)}` failed", why=done.stderr.strip().rpartition("\n")[2])
    return done.stdout.splitlines()[0].strip()


def _ended(
    command: Sequence[str], environment: Mapping[str, str], *, directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command, run to its end. Raises `DeviceError` where it does not start, or does not end."""
    try:
        return subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise DeviceError(f"`{command[0]}` does not start", why=str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise DeviceError(f"`{' '.join(command)}` did not end", why=f"it took over {_TIMEOUT_S:g} s") from error
