"""`edgetrain doctor`: problems on this machine that would stop edgetrain, each with its remedy."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from edgetrain.cli.command import Verb
from edgetrain.cli.console import Console
from edgetrain.errors import EdgetrainError
from edgetrain.units import show_bytes, show_bytes_both

# As the compiler's process loads it.
_LOAD_TVM = """
from edgetrain.compiler.quick_start import do_without_torch
do_without_torch()
import tvm
tvm.target.Target("llvm")
print(tvm.__version__)
"""
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "tqdm", "ziglang")
_LEAST_PYTHON = (3, 11)
_LEAST_FREE_BYTES = 10**9
_TVM_TIMEOUT_S = 120
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One line: `fix` says what to do where `is_ok` is false."""

    name: str
    is_ok: bool
    text: str
    fix: str = ""


def run(arguments: argparse.Namespace, console: Console) -> int:
    symptoms = []
    for examine in _EXAMINATIONS:
        symptoms += examine()
    if console.as_json:
        console.data(json.dumps([asdict(symptom) for symptom in symptoms], indent=1) + "\n")
    else:
        console.data(to_text(symptoms))
    return 0


def to_text(symptoms: list[Symptom]) -> str:
    width = max(len(symptom.name) for symptom in symptoms)
    lines = []
    for symptom in symptoms:
        lines.append(f"{'ok  ' if symptom.is_ok else 'warn'}  {symptom.name:<{width}}  {symptom.text}")
        if not symptom.is_ok:
            lines.append(f"{'':<{width + 8}}fix: {symptom.fix}")
    return "\n".join(lines) + "\n"


def _python() -> list[Symptom]:
    is_ok = sys.version_info >= _LEAST_PYTHON
    return [Symptom(name="python", is_ok=is_ok, text=platform.python_version(), fix="install Python 3.11 or newer")]


def _packages() -> list[Symptom]:
    found = []
    for name in _PACKAGES:
        try:
            found.append(Symptom(name=name, is_ok=True, text=metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append(Symptom(name=name, is_ok=False, text="not installed", fix=f"pip install {name}"))
    return found


def _tvm() -> list[Symptom]:
    """In a process of its own: a TVM that cannot be loaded may take its process with it."""
    command = [sys.executable, "-c", _LOAD_TVM]
    fix = "pip install --force-reinstall apache-tvm apache-tvm-ffi, in the versions that edgetrain names"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TVM_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Symptom(name="tvm loads", is_ok=False, text=str(error), fix=fix)]
    if done.returncode != 0:
        words = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        return [Symptom(name="tvm loads", is_ok=False, text=words, fix=fix)]
    return [Symptom(name="tvm loads", is_ok=True, text=f"{done.stdout.strip()} with LLVM")]


def _compilers() -> list[Symptom]:
    from edgetrain.toolchain.c_compiler import find_compiler

    found = []
    for name, triple in (("compiler", None), ("cross compiler", "aarch64-unknown-linux-gnu")):
        try:
            compiler = find_compiler(triple)
        except EdgetrainError as error:
            text = f"{error.what}: {error.why}" if error.why else error.what
            found.append(Symptom(name=name, is_ok=False, text=text, fix=error.fix or "pip install ziglang"))
        else:
            text = f"{compiler.version} for {compiler.triple.text}"
            found.append(Symptom(name=name, is_ok=True, text=text))
    return found


def _cache() -> list[Symptom]:
    from edgetrain.locate import user_cache_dir

    place = user_cache_dir()
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) if place.is_dir() else 0
    existing = next(path for path in (place, *place.parents) if path.is_dir())
    free = shutil.disk_usage(existing).free
    here = shutil.disk_usage(Path.cwd()).free
    advice = "free some space; the cache can be deleted at any time"
    return [
        Symptom(name="build cache", is_ok=True, text=f"{show_bytes(size)} in {place}"),
        Symptom(name="cache disk", is_ok=free >= _LEAST_FREE_BYTES, text=f"{show_bytes(free)} free", fix=advice),
        Symptom(name="disk here", is_ok=here >= _LEAST_FREE_BYTES, text=f"{show_bytes(here)} free", fix=advice),
    ]


def _machine() -> list[Symptom]:
    from edgetrain.targets.host import read_host

    facts = read_host()
    is_vector = facts.isa.vector_bits > 32
    return [
        Symptom(
            name="cpu",
            is_ok=is_vector,
            text=f"{facts.isa.cpu or platform.machine()}, {facts.isa.vector_bits}-bit vectors, {facts.cores} cores",
            fix="none: kernels compute one number at a time on this processor",
        ),
        Symptom(name="memory", is_ok=True, text=show_bytes_both(facts.memory_bytes)),
        _peak_reset(),
    ]


def _opencl() -> list[Symptom]:
    from edgetrain.targets.opencl import INSTALL, find_opencl

    found = find_opencl()
    if found.device is None:  # nothing but that target needs it
        return [Symptom(name="opencl", is_ok=True, text=f"no device for --target opencl: {INSTALL}")]
    device = found.device
    text = f"{device.name}, {device.driver}, {show_bytes_both(device.memory_bytes)}"
    return [Symptom(name="opencl", is_ok=True, text=text)]


def _peak_reset() -> Symptom:
    try:
        with _CLEAR_REFS.open("w"):
            pass  # to open it is enough: writing would reset a number that somebody may be reading
    except OSError as error:
        text = f"the process's own peak is not measured: {error.strerror}"
        return Symptom(name="peak memory", is_ok=False, text=text, fix="run on Linux with /proc mounted writable")
    return Symptom(name="peak memory", is_ok=True, text="can be measured")


_EXAMINATIONS: tuple[Callable[[], list[Symptom]], ...] = (
    *(_python, _packages, _tvm, _compilers, _machine),
    *(_opencl, _cache),
)

VERB = Verb(
    name="doctor",
    summary="find problems on this machine that would stop edgetrain",
    description="Looks at Python, the packages, TVM, the C compilers, the processor, memory, OpenCL and disk. "
    "Each line is ok, or a warning with what to do about it; the exit code is 0 either way.",
    most_words=0,
    examples=("edgetrain doctor", "edgetrain doctor --json"),
    run=run,
)
