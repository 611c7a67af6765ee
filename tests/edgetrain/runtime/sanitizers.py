"""GCC's sanitizers: whether they work here, and programs built with them out of the runtime's own sources."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgetrain.runtime.sources import RUNTIME_HEADERS, RUNTIME_SOURCES, runtime_text

APPLICATION = Path(__file__).with_name("application")
TIMEOUT_S = 300  # so that what hangs fails

_STRICT = ("-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror")
_PROBE = """
#include <pthread.h>
static void* work(void* argument) { return argument; }
int main(void) {
  pthread_t thread;
  return pthread_create(&thread, 0, work, 0) || pthread_join(thread, 0);
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitizer:
    """What the compiler is told, and what the program is told where it runs. What it finds ends the program."""

    name: str
    flags: tuple[str, ...]
    environment: Mapping[str, str]


MEMORY = Sanitizer(
    name="memory",
    flags=("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"),
    environment={
        "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    },
)
RACES = Sanitizer(name="races", flags=("-fsanitize=thread",), environment={"TSAN_OPTIONS": "halt_on_error=1"})
SANITIZERS = (MEMORY, RACES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What an application is linked with: a driver, its header, and kernels as C, as an object or as an archive."""

    driver: str
    header: str
    kernels: Path


def gcc() -> str:
    """The system's GCC, for zig has no run-time libraries for sanitizers."""
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("needs GCC: apt-get install gcc libc6-dev")
    return found


@functools.cache
def _launcher(flags: tuple[str, ...]) -> tuple[str, ...] | None:
    """What has to stand before a command so that the sanitizer works here; None where it does not.

    Older thread sanitizers know only some places for a program in memory, and newer kernels choose among more.
    """
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "probe.c"
        source.write_text(_PROBE)
        command = [gcc(), *flags, str(source), "-o", f"{name}/probe", "-lpthread"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        for launcher in ((), ("setarch", "-R")):
            runs = [subprocess.run([*launcher, f"{name}/probe"], capture_output=True, check=False) for _ in range(5)]
            if all(run.returncode == 0 for run in runs):
                return launcher
    return None


def launcher_of(sanitizer: Sanitizer) -> tuple[str, ...]:
    gcc()
    launcher = _launcher(sanitizer.flags)
    if launcher is None:
        pytest.skip(f"`gcc {' '.join(sanitizer.flags)}` gives no program that runs: apt-get install gcc libc6-dev")
    return launcher


@functools.cache
def _runtime(flags: tuple[str, ...]) -> Path:
    """The runtime's sources, headers and objects for those flags: compiled once in a process, then shared."""
    folder = Path(tempfile.mkdtemp(prefix="edgetrain-sanitized-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in (*RUNTIME_SOURCES, *RUNTIME_HEADERS):
        (folder / name).write_text(runtime_text(name), encoding="utf-8")
    compile_c([*_STRICT, *flags, "-c", *RUNTIME_SOURCES], folder)
    return folder


def compile_c(arguments: Sequence[str], folder: Path) -> None:
    built = subprocess.run([gcc(), *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr


def build(
    out: Path, program: Program, sanitizer: Sanitizer, sources: Sequence[str], *, options: Sequence[str] = ()
) -> Path:
    """An application of those sources, in the folder `out`: all that there is C for is watched."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "pages").mkdir(exist_ok=True)
    (out / "driver.c").write_text(program.driver, encoding="utf-8")
    (out / "edgetrain_model.h").write_text(program.header, encoding="utf-8")
    runtime = _runtime((*sanitizer.flags, *(option for option in options if option.startswith("-D"))))
    objects = [str(runtime / Path(name).with_suffix(".o")) for name in RUNTIME_SOURCES]
    watched = [str(APPLICATION / name) for name in sources]
    application = out / Path(sources[0]).stem
    compile_c(
        [
            *(*_STRICT, *sanitizer.flags, *options, "-I.", f"-I{APPLICATION}", f"-I{runtime}"),
            *(*watched, "driver.c", *objects, str(program.kernels)),
            *("-Wl,--gc-sections", "-o", application.name, "-lm", "-lpthread"),
        ],
        out,
    )
    return application


def run(application: Path, sanitizer: Sanitizer, *arguments: str) -> str:
    """What it prints. It has to end well, and the sanitizer has to be silent; no file may stay in `pages`."""
    command = [*launcher_of(sanitizer), str(application), *arguments]
    environment = {**os.environ, **sanitizer.environment}
    done = subprocess.run(
        command,
        cwd=application.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-100:] + done.stderr
    assert done.stderr == ""
    pages = application.parent / "pages"
    assert not pages.exists() or not list(pages.iterdir()), "a page file is left over"
    return done.stdout


def wrapped_functions() -> tuple[str, ...]:
    """The names in `FAULT_FUNCTIONS`, which are let fail, and what is counted beside them."""
    text = (APPLICATION / "faults.h").read_text(encoding="utf-8")
    return (*dict.fromkeys(re.findall(r"DO\(([a-z_]+)\)", text)), "pthread_join")
