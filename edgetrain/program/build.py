"""Graph and plan → a program folder: driver emitted, compiled and linked with the kernels. Cached by content."""

from __future__ import annotations

from pathlib import Path

from edgetrain.compiler.compiled import Compiled
from edgetrain.compiler.versions import tool_versions
from edgetrain.files.build_cache import BuildCache, cache_key
from edgetrain.planner import dump as plan_dump
from edgetrain.planner.plan import Plan
from edgetrain.program.artifact import Artifact, load_artifact, write_artifact
from edgetrain.program.emit_c import emit_driver, page_slots
from edgetrain.program.emit_launches import emit_launching_driver, emit_source
from edgetrain.program.known_programs import remember_program
from edgetrain.program.library import build_device_library, build_library
from edgetrain.targets.device import Device
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain.toolchain.zig_object import cipher_cpu

_PROGRAM = "program"


def build_program(
    compiled: Compiled,
    plan: Plan,
    device: Device,
    *,
    cache: BuildCache,
    profile: bool = False,
    encrypts_pages: bool = False,
) -> Artifact:
    """The program for one device, whose kernels `compiled` has under its name.

    With `profile` it counts the seconds of each op. With `encrypts_pages` what it pages is encrypted, where there is a
    page file: on bare metal the application has it. Raises `DeviceError` when no compiler can build for it.
    """
    codegen = device.codegen
    compiler = find_compiler(codegen.triple, cpu=codegen.cpu)
    plan_json = plan_dump.to_json(plan)
    is_bare_metal = compiler.triple.is_bare_metal
    is_encrypted = encrypts_pages and not is_bare_metal and bool(page_slots(plan, compiled.graph))
    key = cache_key(
        "edgetrain.program/1",
        *(compiled.key, plan_json, device.name, codegen.triple, compiler.version),
        *(("profile",) if profile else ()),
        *(("encrypted pages", cipher_cpu(compiler.triple)) if is_encrypted else ()),
    )

    def build(out: Path) -> None:
        code = compiled.device_code(device.name) if device.gpu is not None else None
        if code is not None:
            driver = emit_launching_driver(compiled.graph, plan, code)
            library = build_device_library(
                driver_c=driver, source_c=emit_source(code), out=out / "build", profile=profile, compiler=compiler
            )
        else:
            driver = emit_driver(compiled.graph, plan, encrypts_pages=is_encrypted)
            library = build_library(
                driver_c=driver,
                kernels=compiled.kernels(device.name),
                out=out / "build",
                cpu=codegen.cpu,
                profile=profile,
                encrypts_pages=is_encrypted,
                compiler=compiler,
            )
        write_artifact(
            out / _PROGRAM,
            graph=compiled.graph,
            plan=plan,
            library=library,
            driver_c=driver,
            device_source=code.source if code is not None else None,
            parameters=compiled.initial(),
            target_name=device.name,
            codegen=codegen,
            gpu=device.gpu,
            versions={**tool_versions(), "compiler": compiler.version},
            plan_json=plan_json,
            encrypts_pages=is_encrypted,
        )
        library.unlink()
        library.parent.rmdir()

    program = load_artifact(cache.put(key, build) / _PROGRAM)
    remember_program(cache, program)
    return program
