"""The runtime under sanitizers where it is not alone, not in C, or without an operating system."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from edgetrain.program.library import build_library
from edgetrain.toolchain.c_compiler import Compiler
from tests.edgetrain.program.tiny_program import KERNELS, PLANS, build_tiny, compile_object, host_compiler
from tests.edgetrain.runtime import train_in_process
from tests.edgetrain.runtime.sanitizers import (
    APPLICATION,
    MEMORY,
    SANITIZERS,
    TIMEOUT_S,
    Sanitizer,
    build,
    compile_c,
    gcc,
    launcher_of,
    run,
)
from tests.edgetrain.runtime.sessions import tiny_session

pytestmark = pytest.mark.compile


def _compiler(sanitizer: Sanitizer) -> Compiler:
    """As edgetrain builds its libraries, but watched."""
    launcher_of(sanitizer)  # or skip
    host = host_compiler()
    command = (gcc(), *sanitizer.flags)
    return Compiler(
        command=command, archiver=host.archiver, version=host.version, triple=host.triple, environment=host.environment
    )


@pytest.mark.parametrize("sanitizer", SANITIZERS, ids=lambda sanitizer: sanitizer.name)
def test_two_programs_of_one_process_leave_each_other_alone_and_follow_each_other(
    sanitizer: Sanitizer, tmp_path: Path
) -> None:
    compiler = _compiler(sanitizer)
    kernels = compile_object(compiler, KERNELS, tmp_path / "kernels.o")
    session = tiny_session("page")
    session.lay_out(tmp_path)
    (tmp_path / "expected.bin").write_bytes(session.trained_by_engine(tmp_path))
    (tmp_path / "pages").mkdir()
    (tmp_path / "edgetrain_model.h").write_text(session.program.header)
    for library, plan in (("one.so", "page"), ("other.so", "page unaligned")):
        driver = tiny_session(plan).program.driver
        built = build_library(driver_c=driver, kernels=kernels, out=tmp_path / plan, compiler=compiler)
        built.rename(tmp_path / library)
    runtime = Path(str(APPLICATION)).parents[3] / "edgetrain" / "runtime"
    flags = ("-std=c11", "-g", "-Wall", "-Wextra", "-Werror", *sanitizer.flags, "-I.", f"-I{runtime}")
    compile_c([*flags, str(APPLICATION / "two_programs.c"), "-o", "two_programs", "-lpthread", "-ldl"], tmp_path)
    run(tmp_path / "two_programs", sanitizer)


@pytest.mark.parametrize("plan", ["page", "page unaligned", "store"])
def test_storage_on_bare_metal_may_fail_at_every_transfer(
    plan: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    session = tiny_session(plan)
    session.lay_out(tmp_path)
    options = ("-DEDGE_BARE_METAL",)
    application = build(tmp_path, session.program, MEMORY, ("bare_metal.c", "session.c"), options=options)
    points = int(run(application, MEMORY).split()[1])
    record_property("fault_points", points)
    assert points > 3
    assert (tmp_path / "trained.bin").read_bytes() == session.trained_by_engine(tmp_path)


def test_the_engine_in_python_trains_and_switches_between_watched_libraries(tmp_path: Path) -> None:
    """The address sanitizer lives in the interpreter's process; leaks are the interpreter's own affair."""
    compiler = _compiler(MEMORY)
    programs = [build_tiny(tmp_path / str(i), PLANS[plan](), compiler) for i, plan in enumerate(train_in_process.PLANS)]
    done = subprocess.run(
        [sys.executable, "-m", train_in_process.__name__, *(str(program.directory) for program in programs)],
        env=_with_address_sanitizer(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "libasan" in done.stdout, "the sanitizer was not there"


def _with_address_sanitizer() -> Mapping[str, str]:
    found = subprocess.run([gcc(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    preload = os.pathsep.join([str(Path(found.strip()).resolve())])
    options = MEMORY.environment["ASAN_OPTIONS"].replace("detect_leaks=1", "detect_leaks=0")
    return {**os.environ, **MEMORY.environment, "ASAN_OPTIONS": options, "LD_PRELOAD": preload, "PYTHONPATH": _paths()}


def _paths() -> str:
    return os.pathsep.join(filter(None, sys.path))
