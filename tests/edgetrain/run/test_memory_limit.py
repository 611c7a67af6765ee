"""A process that may not grow by more than was planned: the system itself holds it to that (`RLIMIT_DATA`)."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.planner.plan import Budget
from edgetrain.program.artifact import Artifact
from edgetrain.recipes import load_recipe
from edgetrain.targets.profile import load_target
from edgetrain.units import Bytes

pytestmark = pytest.mark.compile

# Large enough that the interpreter's own growth is small beside it.
WIDE = ("model.source=zoo:digits-cnn-bn", "train.batch=1024", "train.steps=2", "train.epochs=9")
MARGIN_BYTES = 2 << 20  # malloc grows by pieces of up to 1 MiB
STACK_BYTES = 256 << 10  # of each thread, in place of the usual 8 MiB, which would hide half of the arena

# Sets the limit when everything is imported, so that only what the program takes counts.
_ENGINE = """
import resource, sys
from pathlib import Path
from edgetrain.cli.failure import as_edgetrain_error
from edgetrain.program.artifact import load_artifact
from edgetrain.run.engines.local import LocalEngine

def data_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))

artifact = load_artifact(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    with LocalEngine(artifact, threads=int(sys.argv[4]), page_directory=Path(sys.argv[3])) as engine:
        engine.tensor("train.learning_rate")[...] = 0.01
        for _ in range(2):
            engine.call("step")
        print(engine.measured_peak_bytes())
except Exception as error:
    print(as_edgetrain_error(error).what)
    sys.exit(as_edgetrain_error(error).exit_code)
"""


def job_with(build_cache: BuildCache, budget: int | None = None) -> Job:
    return Job(
        recipe=load_recipe("digits", WIDE),
        target=load_target("host"),
        budget=Budget(memory_bytes=None if budget is None else Bytes(budget)),
        cache=build_cache,
    )


@pytest.fixture(scope="module")
def programs(build_cache: BuildCache) -> tuple[Artifact, Artifact]:
    """One that keeps everything, and one inside 80 % of that."""
    job = dataclasses.replace(job_with(build_cache), solver="keep-all")
    compiled = compile_job(job)
    whole = compiled.plan()
    budget_bytes = whole.plan.peak_bytes * 8 // 10 + compiled.beside.resident_bytes
    tight = compiled.asking(budget=Budget(memory_bytes=Bytes(budget_bytes)), solver=Job.solver)
    return whole.build().program, tight.plan().build().program


def limited(artifact: Artifact, growth_bytes: int, folder: Path, *, threads: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [str(artifact.directory), str(growth_bytes), str(folder), str(threads)]
    command = f'ulimit -s {STACK_BYTES // 1024}; exec {sys.executable} -c "$0" "$@"'
    return subprocess.run(
        ["sh", "-c", command, _ENGINE, *arguments], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("which", [0, 1], ids=["keep-all", "tight"])
def test_a_process_that_may_grow_by_what_was_planned_trains(
    which: int, threads: int, programs: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    program = programs[which]
    planned = program.manifest.planned_peak_bytes
    assert planned > 5 * MARGIN_BYTES, "the margin would prove nothing"
    done = limited(program, planned + MARGIN_BYTES, tmp_path, threads=threads)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 0.9 * planned < int(done.stdout) <= planned


def test_the_plan_that_keeps_everything_does_not_fit_where_the_tight_one_does(
    programs: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    whole, tight = programs
    growth = tight.manifest.planned_peak_bytes + MARGIN_BYTES
    assert limited(tight, growth, tmp_path, threads=1).returncode == 0
    done = limited(whole, growth, tmp_path, threads=1)
    assert done.returncode == 6
    assert done.stdout.startswith("no memory for an arena of ")


_COMMAND = """
import resource, sys
from pathlib import Path
from edgetrain.pipeline import fit  # with NumPy, whose own buffers are not what is limited
from edgetrain.cli.entry import main

lines = Path("/proc/self/status").read_text().splitlines()
used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
resource.setrlimit(resource.RLIMIT_DATA, (used + int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


def test_a_command_without_the_memory_it_planned_ends_with_words_and_code_6(
    programs: tuple[Artifact, Artifact], command_environment: Mapping[str, str], tmp_path: Path
) -> None:
    growth = programs[0].manifest.planned_peak_bytes - MARGIN_BYTES
    words = ["fit", "digits", *WIDE, "--solver", "keep-all", "--threads", "1", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, str(growth), *words],
        capture_output=True,
        text=True,
        env=dict(command_environment),
        check=False,
    )
    assert done.returncode == 6, done.stderr
    assert "error: no memory for an arena of " in done.stderr
    assert "hint: free memory, raise the limit" in done.stderr
    assert "Traceback" not in done.stderr
