"""The driver, the runtime and the kernels, compiled and linked into one library.

Same inputs, same bytes: sources are compiled under relative names, without build ids, debug data or time stamps.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from edgetrain.files.scratch import scratch_folder
from edgetrain.runtime.sources import DEVICE_SOURCES, PAGE_CIPHER, RUNTIME_HEADERS, RUNTIME_SOURCES, runtime_text
from edgetrain.toolchain.c_compiler import LIBRARIES, Compiler, find_compiler, run_command
from edgetrain.toolchain.object_archive import SUFFIX, read_archive
from edgetrain.toolchain.zig_object import build_zig_object, cipher_cpu

log = logging.getLogger(__name__)

SHARED_LIBRARY = "libedgetrain_model.so"
STATIC_LIBRARY = "libedgetrain_model.a"

_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_COMPILE = ("-std=c11", "-O2", "-g0", *_WARNINGS, "-fno-ident")
_DEVICE = ("-DEDGE_DEVICE", "source.c", "opencl.c")
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


def build_library(
    *,
    driver_c: str,
    kernels: Path,
    out: Path,
    triple: str | None = None,
    cpu: str = "",
    threads: bool = True,
    profile: bool = False,
    encrypts_pages: bool = False,
    compiler: Compiler | None = None,
) -> Path:
    """Builds the driver, the runtime and the kernels into one library in the directory `out`, and returns its path.

    `kernels` is an object, or an archive of them (`object_archive`).
    With an operating system it is a shared library that exports `edge_*` alone; on bare metal a static archive, so
    that an application which does not page need not supply the paging callbacks. With `profile` it counts the seconds
    of each op. With `encrypts_pages`, for which the driver must be made too, nobody else reads its pages. The bytes
    depend on the inputs and the compiler, on nothing else (encrypted pages: also on the processor's instructions for
    ciphers). Raises `DeviceError` with the compiler's first lines when it fails.
    """
    chosen = compiler or find_compiler(triple, cpu=cpu)
    out.mkdir(parents=True, exist_ok=True)
    with scratch_folder("build") as directory:
        _lay_out_sources(directory, driver_c)
        if chosen.triple.is_bare_metal:
            built = _build_archive(chosen, directory, _objects_of(kernels, directory))
        else:
            options = [
                *(() if threads else ("-DEDGE_NO_THREADS",)),
                *(("-DEDGE_PROFILE",) if profile else ()),
                *(("-DEDGE_ENCRYPTED_PAGES", _page_cipher(chosen, directory)) if encrypts_pages else ()),
            ]
            name = f"kernels{kernels.suffix}"
            shutil.copyfile(kernels, directory / name)
            built = _build_shared(chosen, directory, options, name)
        library = out / built.name
        shutil.copyfile(built, library)
    log.info("built %s for %s, %d bytes", library.name, chosen.triple.text, library.stat().st_size)
    return library


def build_device_library(
    *, driver_c: str, source_c: str, out: Path, profile: bool = False, compiler: Compiler | None = None
) -> Path:
    """Builds a program whose kernels a GPU runs: its driver, the kernels' source and the runtime.

    One thread launches all kernels: it has no pool of them. Otherwise as `build_library`.
    """
    chosen = compiler or find_compiler()
    out.mkdir(parents=True, exist_ok=True)
    with scratch_folder("build") as directory:
        _lay_out_sources(directory, driver_c)
        for name in DEVICE_SOURCES:
            (directory / name).write_text(runtime_text(name), encoding="utf-8")
        (directory / "source.c").write_text(source_c, encoding="utf-8")
        options = [*_DEVICE, "-DEDGE_NO_THREADS", *(("-DEDGE_PROFILE",) if profile else ())]
        library = out / SHARED_LIBRARY
        shutil.copyfile(_build_shared(chosen, directory, options, "-ldl"), library)
    log.info("built %s for OpenCL, %d bytes", library.name, library.stat().st_size)
    return library


def _lay_out_sources(directory: Path, driver_c: str) -> None:
    for name in (*RUNTIME_SOURCES, *RUNTIME_HEADERS):
        (directory / name).write_text(runtime_text(name), encoding="utf-8")
    (directory / "driver.c").write_text(driver_c, encoding="utf-8")
    (directory / "exports.map").write_text(_VERSION_SCRIPT, encoding="utf-8")


def _page_cipher(compiler: Compiler, directory: Path) -> str:
    """The object with the cipher, by its name in the directory."""
    (directory / PAGE_CIPHER).write_text(runtime_text(PAGE_CIPHER), encoding="utf-8")
    return build_zig_object(compiler.triple, cipher_cpu(compiler.triple), PAGE_CIPHER, directory)


def _objects_of(kernels: Path, directory: Path) -> list[str]:
    """The names of the kernels' objects, laid out in the directory: an archive does not hold archives."""
    found = [("kernels.o", kernels.read_bytes())] if kernels.suffix != SUFFIX else read_archive(kernels)
    for name, content in found:
        (directory / name).write_bytes(content)
    return [name for name, _ in found]


def _build_shared(compiler: Compiler, directory: Path, options: Sequence[str], linked: str) -> Path:
    """`linked` is the kernels' object, or the library that the runtime of a GPU needs."""
    sources = ("driver.c", *RUNTIME_SOURCES, linked)
    _run(compiler, [*_COMPILE, *_SHARED, *options, *sources, *_LINK, "-o", SHARED_LIBRARY, *LIBRARIES], directory)
    return directory / SHARED_LIBRARY


def _build_archive(compiler: Compiler, directory: Path, kernels: Sequence[str]) -> Path:
    """Without threads and without a clock: there are none without an operating system."""
    objects = []
    for source in ("driver.c", *RUNTIME_SOURCES):
        objects.append(f"{Path(source).stem}.o")
        _run(compiler, [*_COMPILE, *_BARE_METAL, "-c", source, "-o", objects[-1]], directory)
    # D: no dates, no owners.
    run_command(
        [*compiler.archiver, "rcsD", STATIC_LIBRARY, *objects, *kernels], compiler, directory, what=STATIC_LIBRARY
    )
    return directory / STATIC_LIBRARY


def _run(compiler: Compiler, arguments: Sequence[str], directory: Path) -> None:
    sources = [argument for argument in arguments if argument.endswith(".c")]
    run_command([*compiler.command, *arguments], compiler, directory, what=", ".join(sources))
