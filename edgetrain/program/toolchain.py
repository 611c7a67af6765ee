"""A C compiler for every target, and the one command line that turns a driver and its kernels into a library.

This machine's programs are built by the system's `cc` where it works; everything else by `zig cc`, which pip installs
and which brings the headers and libraries of its targets along. Same inputs, same bytes: sources are compiled under
relative names, without build ids, debug data or time stamps.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from edgetrain.errors import DeviceError
from edgetrain.program.object_archive import SUFFIX, read_archive

log = logging.getLogger(__name__)

RUNTIME_SOURCES = ("arena.c", "threads.c", "pager.c", "page_file.c", "profile.c")
RUNTIME_HEADERS = ("edgetrain.h", "internal.h")
SHARED_LIBRARY = "libedgetrain_model.so"
STATIC_LIBRARY = "libedgetrain_model.a"

# glibc of the oldest system we load into: JetPack 4 and Debian 10 are newer. riscv64 begins with it.
_GLIBC = "2.27"
_ANDROID_API = 24  # Android 7: the first whose libc has all that the pager calls

_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_COMPILE = ("-std=c11", "-O2", "-g0", *_WARNINGS, "-fno-ident")
_SHARED = ("-fPIC", "-shared", "-fvisibility=default")
# What a bare-metal linker can drop section by section; unwind tables would pull in an unwinder.
_BARE_METAL = ("-DEDGE_BARE_METAL", "-ffunction-sections", "-fdata-sections", "-fno-unwind-tables", "-fno-exceptions")
# Kernels keep default visibility: without the script, a second library's kernels, or TVM's own runtime, could take
# the place of ours when both are loaded.
_VERSION_SCRIPT = "{ global: edge_*; local: *; };\n"
_LINK = (
    "-Wl,--version-script=exports.map",
    "-Wl,--build-id=none",
    "-Wl,--strip-debug",
    "-Wl,--gc-sections",  # every object brings TVM's conversions of half floats along
    "-Wl,-z,noexecstack",
    "-Wl,-z,defs",
)
_LIBRARIES = ("-lm", "-lpthread")

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
    `zig_cache` is where zig keeps what it builds of its own libraries; without it, a private directory among the
    temporary files. Raises `DeviceError` when nothing can compile for the target.
    """
    target = parse_triple(triple) if triple else host_triple()
    if target.is_android:
        return _android_compiler(target)
    if _same_machine(target, host_triple()):
        system = _system_compiler(target)
        if system is not None:
            return system
    return _zig_compiler(target, cpu, zig_cache)


def build_library(
    *,
    driver_c: str,
    kernels: Path,
    out: Path,
    triple: str | None = None,
    cpu: str = "",
    threads: bool = True,
    profile: bool = False,
    compiler: Compiler | None = None,
) -> Path:
    """Builds the driver, the runtime and the kernels into one library in the directory `out`, and returns its path.

    `kernels` is an object, or an archive of them (`object_archive`).
    With an operating system it is a shared library that exports `edge_*` alone; on bare metal a static archive, so
    that an application which does not page need not supply the paging callbacks. With `profile` it counts the seconds
    of each op. The bytes depend on the inputs and the compiler, on nothing else. Raises `DeviceError` with the
    compiler's first lines when it fails.
    """
    chosen = compiler or find_compiler(triple, cpu=cpu)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="edgetrain-build-") as name:
        directory = Path(name)
        _lay_out_sources(directory, driver_c)
        if chosen.triple.is_bare_metal:
            built = _build_archive(chosen, directory, _objects_of(kernels, directory))
        else:
            options = (*(() if threads else ("-DEDGE_NO_THREADS",)), *(("-DEDGE_PROFILE",) if profile else ()))
            name = f"kernels{kernels.suffix}"
            shutil.copyfile(kernels, directory / name)
            built = _build_shared(chosen, directory, options, name)
        library = out / built.name
        shutil.copyfile(built, library)
    log.info("built %s for %s, %d bytes", library.name, chosen.triple.text, library.stat().st_size)
    return library


def runtime_text(name: str) -> str:
    """A file of the C runtime, as it is shipped in the package."""
    return (files("edgetrain.program") / "runtime" / name).read_text(encoding="utf-8")


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
    with tempfile.TemporaryDirectory(prefix="edgetrain-cc-") as name:
        (Path(name) / "probe.c").write_text("#include <math.h>\nfloat edge_probe(float x) { return expf(x); }\n")
        command = [path, "-fPIC", "-shared", "probe.c", "-o", "probe.so", *_LIBRARIES]
        probe = subprocess.run(command, cwd=name, capture_output=True, timeout=_TIMEOUT_S, check=False)
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
    cache = str(zig_cache or _default_zig_cache())
    environment = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    zig = (sys.executable, "-m", "ziglang")
    try:
        version = _first_line([*zig, "version"], environment)
    except DeviceError as error:
        raise DeviceError(
            f"no C compiler for `{triple.text}`", why=error.why, fix="`pip install ziglang`, which brings one"
        ) from error
    command = (*zig, "cc", "-target", _zig_target(triple), f"-mcpu={_zig_cpu(triple, cpu)}")
    return Compiler(
        command=command, archiver=(*zig, "ar"), version=f"zig {version}", triple=triple, environment=environment
    )


def _zig_target(triple: Triple) -> str:
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


def _default_zig_cache() -> Path:
    """A directory of this user's own among the temporary files; never one that somebody else could have prepared."""
    path = Path(tempfile.gettempdir()) / f"edgetrain-zig-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
        return path
    return Path(tempfile.mkdtemp(prefix="edgetrain-zig-"))


def _lay_out_sources(directory: Path, driver_c: str) -> None:
    for name in (*RUNTIME_SOURCES, *RUNTIME_HEADERS):
        (directory / name).write_text(runtime_text(name), encoding="utf-8")
    (directory / "driver.c").write_text(driver_c, encoding="utf-8")
    (directory / "exports.map").write_text(_VERSION_SCRIPT, encoding="utf-8")


def _objects_of(kernels: Path, directory: Path) -> list[str]:
    """The names of the kernels' objects, laid out in the directory: an archive does not hold archives."""
    found = [("kernels.o", kernels.read_bytes())] if kernels.suffix != SUFFIX else read_archive(kernels)
    for name, content in found:
        (directory / name).write_bytes(content)
    return [name for name, _ in found]


def _build_shared(compiler: Compiler, directory: Path, options: Sequence[str], kernels: str) -> Path:
    sources = ("driver.c", *RUNTIME_SOURCES, kernels)
    _run(compiler, [*_COMPILE, *_SHARED, *options, *sources, *_LINK, "-o", SHARED_LIBRARY, *_LIBRARIES], directory)
    return directory / SHARED_LIBRARY


def _build_archive(compiler: Compiler, directory: Path, kernels: Sequence[str]) -> Path:
    """Without threads and without a clock: there are none without an operating system."""
    objects = []
    for source in ("driver.c", *RUNTIME_SOURCES):
        objects.append(f"{Path(source).stem}.o")
        _run(compiler, [*_COMPILE, *_BARE_METAL, "-c", source, "-o", objects[-1]], directory)
    # D: no dates, no owners.
    _run_command(
        [*compiler.archiver, "rcsD", STATIC_LIBRARY, *objects, *kernels], compiler, directory, what=STATIC_LIBRARY
    )
    return directory / STATIC_LIBRARY


def _run(compiler: Compiler, arguments: Sequence[str], directory: Path) -> None:
    sources = [argument for argument in arguments if argument.endswith(".c")]
    _run_command([*compiler.command, *arguments], compiler, directory, what=", ".join(sources))


def _run_command(command: Sequence[str], compiler: Compiler, directory: Path, *, what: str) -> None:
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
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise DeviceError(f"`{command[0]}` does not start", why=str(error)) from error
    if done.returncode != 0 or not done.stdout.strip():
        raise DeviceError(f"`{' '.join(command)}` failed", why=done.stderr.strip().rpartition("\n")[2])
    return done.stdout.splitlines()[0].strip()
