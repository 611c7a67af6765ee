"""`edgetrain export`: what a run made, taken elsewhere."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from edgetrain.cli.command import Flag, Verb
from edgetrain.cli.console import Console
from edgetrain.cli.stages import Stages
from edgetrain.errors import DataError, UsageError

if TYPE_CHECKING:
    from edgetrain.program.artifact import Artifact


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.onnx is None and arguments.program is None:
        raise UsageError("`edgetrain export` needs --onnx or --program", fix=f"like `{VERB.examples[0]}`")
    folder = Path(arguments.words[0])
    written = {}
    if arguments.onnx is not None:
        export_onnx(folder, arguments.onnx)
        written["onnx"] = str(arguments.onnx)
    if arguments.program is not None:
        program_of(folder, console).copy_to(arguments.program)
        written["program"] = str(arguments.program)
    lines = "".join(f"{kind} {path}\n" for kind, path in written.items())
    console.data(json.dumps(written) + "\n" if console.as_json else lines)
    return 0


def export_onnx(folder: Path, out: Path) -> None:
    """Copies the trained model, whole or not at all. Raises `DataError` for a run that has none yet."""
    from edgetrain.run.durable import replaced_file
    from edgetrain.run.execute import RunFolder
    from edgetrain.run.trained import read_recipe

    run_folder = RunFolder(folder)
    recipe = read_recipe(run_folder)
    if not run_folder.model.is_file():
        raise DataError(
            f"`{folder}` holds no trained model",
            why="the run did not come to its end",
            fix=f"finish it with `edgetrain fit {recipe.name} --resume --out {shlex.quote(str(folder))}`",
        )
    with replaced_file(out) as file:
        file.write(run_folder.model.read_bytes())


def program_of(folder: Path, console: Console) -> Artifact:
    """The run's program for its target: the one in the folder, or from the build cache where that is another device."""
    from edgetrain import pipeline
    from edgetrain.cli.request import job_of
    from edgetrain.program.artifact import load_artifact
    from edgetrain.program.build import build_program
    from edgetrain.run.execute import RunFolder
    from edgetrain.run.folders import JobRecord
    from edgetrain.run.trained import read_recipe
    from edgetrain.targets import HOST

    run_folder = RunFolder(folder)
    recipe, record = read_recipe(run_folder), JobRecord.read(folder)
    if record is None or record.target == HOST:
        return load_artifact(run_folder.program)
    with Stages(console) as stages:
        job = job_of(argparse.Namespace(), recipe, console, progress=stages, stored=record)
        compiled = pipeline.compile_stage(job)
    plan = pipeline.plan_stage(job, compiled)
    return build_program(compiled, plan, pipeline.codegen_of(job.target), cache=job.cache)


VERB = Verb(
    name="export",
    summary="take the trained ONNX model or the C program out of a run",
    description=(
        "Writes the trained model as ONNX, or the compiled training program as a folder: a C library, its header, the "
        "driver's source, the parameters it starts from and a manifest. Neither needs Python or TVM where it is used."
    ),
    words="RUN",
    least_words=1,
    most_words=1,
    flags=(
        Flag(name="--onnx", metavar="FILE", parse=Path, help="write the trained model there"),
        Flag(name="--program", metavar="DIR", parse=Path, help="write the program for the run's target there"),
    ),
    examples=(
        "edgetrain export runs/digits --onnx trained.onnx",
        "edgetrain export runs/digits --program digits-program",
    ),
    run=run,
)
