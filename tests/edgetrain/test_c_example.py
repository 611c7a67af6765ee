"""The C program in docs/artifact.md, built and run as it stands, does what the engine does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgetrain.files.build_cache import BuildCache
from edgetrain.graph import ir as names
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.recipes import load_recipe
from edgetrain.run.engines.local import LocalEngine
from edgetrain.targets.profile import load_target
from edgetrain.toolchain.c_compiler import find_compiler

PAGE = Path(__file__).resolve().parents[2] / "docs" / "artifact.md"
STEPS = 20
RATE = 0.001

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("compiler_here")]


def example() -> str:
    (text,) = re.findall(r"^```c\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_example_in_the_documentation_trains_to_the_bits_of_the_engine(tmp_path: Path) -> None:
    job = Job(recipe=load_recipe("digits"), target=load_target("host"), cache=BuildCache(tmp_path / "cache"))
    program = compile_job(job).plan().build().program
    folder = tmp_path / "program"
    program.copy_to(folder)
    images = np.random.Generator(np.random.PCG64(0)).random((32, 1, 8, 8), dtype=np.float32)
    (folder / "batch.bin").write_bytes(images.tobytes())

    printed = _build_and_run(folder)

    losses = [float(value) for value in re.findall(r"loss (\S+)", printed)]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0] / 2
    with LocalEngine(program, threads=1, page_directory=tmp_path) as engine:
        for step in range(1, STEPS + 1):
            engine.tensor("image")[...] = images
            engine.tensor(names.LABELS)[...] = 0
            engine.tensor(names.LEARNING_RATE)[...] = RATE
            engine.tensor(names.FIRST_CORRECTION)[...] = 1.0 - 0.9**step
            engine.tensor(names.SECOND_CORRECTION)[...] = 1.0 - 0.999**step
            engine.call(names.STEP)
        assert (folder / "trained.bin").read_bytes() == bytes(engine.saved)


def _build_and_run(folder: Path) -> str:
    (folder / "example.c").write_text(example(), encoding="utf-8")
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2")
    link = ("example.c", "libedgetrain_model.so", "-lm", "-Wl,-rpath,$ORIGIN", "-o", "example")
    built = subprocess.run(
        [*find_compiler().command, *strict, *link], cwd=folder, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    ran = subprocess.run(["./example", "batch.bin"], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
