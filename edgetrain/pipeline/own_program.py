"""A run folder opened to be used, with a program that was built on this machine.

A run's program is machine code, and its manifest only says that it is whole, not who made it. Where this user's build
cache did not build it, the program is built again from what is data: the recipe, the model and the schedules.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path

from edgetrain.compiler.request import ZOO
from edgetrain.dataset.load import load_recipe_data
from edgetrain.errors import DataError, EdgetrainError
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.persistent import SAVED_ROLES
from edgetrain.locate import user_cache_dir
from edgetrain.pipeline.job import Job, Notify, encrypts_pages, say_nothing
from edgetrain.pipeline.resolve import with_contribution, with_recorded_schedules
from edgetrain.pipeline.stages import compile_job
from edgetrain.planner.plan import Budget
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.program.known_programs import is_known_program
from edgetrain.program.manifest import Manifest
from edgetrain.recipes import Recipe
from edgetrain.run.files.folders import JobRecord
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import TrainedRun, open_run
from edgetrain.targets.profile import HOST, load_target
from edgetrain.units import Bytes


def open_own_run(
    path: Path, *, trust_program: bool = False, cache: BuildCache | None = None, notify: Notify = say_nothing
) -> TrainedRun:
    """The run with a program that this user's cache built; with `trust_program`, with the one in the folder.

    Raises as `open_run`, and `DataError` where the program is a stranger's and cannot be built again.
    """
    run = open_run(path)
    cache = cache or BuildCache(user_cache_dir() / "builds")
    if trust_program or is_known_program(cache, run.program):
        return run
    notify(f"the program in `{path}` was not built here: it is built again from the run's recipe")
    try:
        program = _built_again(run, cache)
    except EdgetrainError as error:
        raise _refused(path, error.what) from error
    if _saved(program.manifest) != _saved(run.program.manifest):
        raise _refused(path, "what was built from its recipe has other parameters")
    return dataclasses.replace(run, program=program)


def _built_again(run: TrainedRun, cache: BuildCache) -> Artifact:
    record = JobRecord.read(run.folder.path) or JobRecord(target=HOST, solver=Job.solver)
    memory_bytes = None if record.memory_bytes is None else Bytes(record.memory_bytes)
    job = Job(
        recipe=with_model_of_run(run.recipe, run.folder),
        target=load_target(record.target),
        budget=Budget(memory_bytes=memory_bytes),
        cache=cache,
    )
    job = with_recorded_schedules(job, run.folder)
    if job.recipe.update.mode == "sparse":
        job = with_contribution(job, load_recipe_data(job.recipe))  # which tensors were trained is a fact of the data
    planned = compile_job(job).plan()
    return build_program(planned.compiled, planned.plan, job.runs_on, cache=cache, encrypts_pages=encrypts_pages(job))


def with_model_of_run(recipe: Recipe, folder: RunFolder) -> Recipe:
    """The recipe with the run's trained model in the place of the one it began with, where that is not here.

    An encrypted model is no source: the compiler reads files, and its cache keeps what it reads.
    """
    source = recipe.model.source
    if source.startswith(ZOO) or Path(source).is_file() or not folder.model.is_file() or recipe.security.key:
        return recipe
    model = dataclasses.replace(recipe.model, source=os.fspath(folder.model.resolve()), classes=None, head="")
    return dataclasses.replace(recipe, model=model)


def _saved(manifest: Manifest) -> list[tuple[str, tuple[int, ...], str, str]]:
    """What a checkpoint holds, in its order."""
    return [(n, t.shape, t.dtype, str(t.role)) for n, t in manifest.tensors.items() if t.role in SAVED_ROLES]


def _refused(path: Path, why: str) -> DataError:
    return DataError(
        f"the program in `{path}` was not built here, and cannot be built again",
        why=f"{why}; the program in the folder is machine code, which may do whatever whoever made it wants",
        fix=f"if you trust who made `{shlex.quote(str(path))}`, add --trust-program (in Python trust_program=True)",
    )
