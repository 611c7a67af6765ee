"""The same program on emulated devices: plain C, no Python, no TVM, and the losses of the host."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks import emulated_board as board
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.planner.plan import Budget
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.recipes import load_recipe
from edgetrain.run.engines.local import LocalEngine
from edgetrain.runtime.sources import RUNTIME_HEADERS, RUNTIME_SOURCES, runtime_text
from edgetrain.targets.profile import load_target
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain.units import Bytes

pytestmark = pytest.mark.compile

STEPS = 5
STACK_BYTES = 4096
OTHER_DATA_BYTES = 1024  # the runtime's own variables
OVERRIDES = ("train.batch=2", "train.optimizer=sgd", "train.momentum=0.9", "train.schedule=constant")


def _need(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}: apt-get install {package}")
    return found


def _job(build_cache: BuildCache, target: str, budget: int | None = None) -> Job:
    memory = Budget(memory_bytes=None if budget is None else Bytes(budget))
    return Job(recipe=load_recipe("digits", OVERRIDES), target=load_target(target), budget=memory, cache=build_cache)


def _batch() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((2, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 2)


def _host_run(program: Artifact, tmp_path: Path) -> tuple[list[float], bytes]:
    images, labels = _batch()
    with LocalEngine(program, threads=2, page_directory=tmp_path) as engine:
        engine.tensor("image")[...] = images
        engine.tensor("train.labels")[...] = labels
        engine.tensor("train.learning_rate")[...] = 0.05
        losses = []
        for _ in range(STEPS):
            engine.call("step")
            losses.append(float(engine.tensor("train.loss")))
        return losses, bytes(engine.saved)


def _programs(job: Job) -> tuple[Artifact, Artifact]:
    planned = compile_job(job).plan()
    host = load_target("host").device
    return tuple(build_program(planned.compiled, planned.plan, d, cache=job.cache) for d in (job.device, host))  # type: ignore[return-value]


def _lay_out(program: Artifact, folder: Path) -> None:
    for name in ("edgetrain_model.h", "driver.c", "parameters.bin"):
        shutil.copy(program.directory / name, folder)
    for name in (*RUNTIME_SOURCES, *RUNTIME_HEADERS):
        (folder / name).write_text(runtime_text(name))
    images, labels = _batch()
    (folder / "images.bin").write_bytes(images.tobytes())
    (folder / "labels.bin").write_bytes(labels.tobytes())


def _losses(text: str) -> list[float]:
    return [struct.unpack(">f", bytes.fromhex(line))[0] for line in text.split()]


def _run(
    command: list[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=folder, env=whole, capture_output=True, text=True, timeout=board.TIMEOUT_S)


def test_an_aarch64_linux_device_trains_like_the_host(build_cache: BuildCache, tmp_path: Path) -> None:
    qemu = _need("qemu-aarch64-static", "qemu-user-static")
    job = _job(build_cache, "jetson")
    program, host = _programs(job)
    _lay_out(program, tmp_path)
    kernels = compile_job(job).compiled.kernels("jetson")
    compiler = find_compiler("aarch64-linux-musl")
    options = ["-static", "-O2", f"-DSTEPS={STEPS}", "-I."]
    sources = ["driver.c", *RUNTIME_SOURCES, str(board.FILES / "linux_main.c"), str(kernels)]
    command = [*compiler.command, *options, *sources, "-o", "train", "-lm", "-lpthread"]
    built = _run(command, tmp_path, compiler.environment)
    assert built.returncode == 0, built.stderr
    done = _run([qemu, "./train", "parameters.bin", "images.bin", "labels.bin", "trained.bin"], tmp_path)
    assert done.returncode == 0, done.stderr
    losses, saved = _host_run(host, tmp_path)
    np.testing.assert_allclose(_losses(done.stdout), losses, rtol=1e-5)
    trained = np.frombuffer((tmp_path / "trained.bin").read_bytes(), np.float32)
    np.testing.assert_allclose(trained, np.frombuffer(saved, np.float32), rtol=1e-3, atol=1e-5)


def _build_firmware(program: Artifact, folder: Path, ram_bytes: int) -> subprocess.CompletedProcess[str]:
    compiler = find_compiler(program.manifest.triple, cpu=program.manifest.cpu)
    sources = [board.FILES / "cortex_m_main.c", program.library]
    return board.link_firmware(
        compiler, folder, sources, f"-DSTEPS={STEPS}", ram_bytes=ram_bytes, stack_bytes=STACK_BYTES
    )


def test_a_cortex_m4_trains_in_exactly_the_ram_that_was_planned(build_cache: BuildCache, tmp_path: Path) -> None:
    qemu = _need(board.EMULATOR, board.PACKAGE)
    program, host = _programs(_job(build_cache, "cortex-m4"))
    _lay_out(program, tmp_path)
    ram = program.manifest.arena_bytes + STACK_BYTES + OTHER_DATA_BYTES
    built = _build_firmware(program, tmp_path, ram)
    assert built.returncode == 0, built.stderr
    done = board.run_firmware(qemu, program.manifest.cpu, tmp_path)
    assert done.returncode == 0, done.stderr
    losses, _ = _host_run(host, tmp_path)
    np.testing.assert_allclose(_losses(done.stdout + done.stderr), losses, rtol=1e-4)


def test_firmware_does_not_link_into_less_ram_than_planned(build_cache: BuildCache, tmp_path: Path) -> None:
    program, _ = _programs(_job(build_cache, "cortex-m4"))
    _lay_out(program, tmp_path)
    built = _build_firmware(program, tmp_path, program.manifest.arena_bytes)
    assert built.returncode != 0
    assert "RAM" in built.stderr
