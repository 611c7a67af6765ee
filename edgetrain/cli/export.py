"""`edgetrain export`: writes the trained model or the program of a run to another place."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from edgetrain.cli.command import Flag, Verb, to_path
from edgetrain.cli.console import Console
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.errors import UsageError

if TYPE_CHECKING:
    from edgetrain.program.artifact import Artifact

_KINDS = ("onnx", "program", "safetensors", "peft")


def run(arguments: argparse.Namespace, console: Console) -> int:
    if all(getattr(arguments, kind) is None for kind in _KINDS):
        needed = " or ".join(f"--{kind}" for kind in _KINDS)
        raise UsageError(f"`edgetrain export` needs {needed}", fix=f"like `{VERB.examples[0]}`")
    folder = Path(arguments.words[0])
    written = {}
    if arguments.onnx is not None:
        export_onnx(folder, arguments.onnx)
        written["onnx"] = str(arguments.onnx)
    if arguments.program is not None:
        program = program_of(folder, console)
        program.copy_to(
            arguments.program,
            saved=trained_bytes(folder),
            beside=description_of(folder),
            keeps_changed=True,
            is_shared=True,
        )
        written["program"] = str(arguments.program)
    if arguments.safetensors is not None:
        export_safetensors(folder, arguments.safetensors)
        written["safetensors"] = str(arguments.safetensors)
    if arguments.peft is not None:
        export_peft(folder, arguments.peft, console, trust_program=bool(arguments.trust_program))
        written["peft"] = str(arguments.peft)
    lines = "".join(f"{kind} {path}\n" for kind, path in written.items())
    console.data(json.dumps(written) + "\n" if console.as_json else lines)
    return 0


def export_onnx(folder: Path, out: Path) -> None:
    """Copies the trained model, whole or not at all. Raises `DataError` for a run that has none yet."""
    from edgetrain.files.atomic_file import replaced_file

    model = trained_model(folder)
    with replaced_file(out, is_shared=True) as file:
        file.write(model)


def export_safetensors(folder: Path, out: Path) -> None:
    """Writes the trained model's weights under their names in the ONNX file. Raises `DataError` as `export_onnx`."""
    import onnx

    from edgetrain.files.safetensors_file import write_safetensors
    from edgetrain.model.stored_weights import stored_weights

    write_safetensors(out, stored_weights(onnx.load_model_from_string(trained_model(folder))))


def trained_model(folder: Path) -> bytes:
    """The run's ONNX file. Raises `DataError` for a run that has none yet, or whose file is not what it wrote."""
    from edgetrain.run.files.run_folder import RunFolder
    from edgetrain.run.files.trained_onnx import trained_onnx

    return trained_onnx(RunFolder(folder))


def trained_bytes(folder: Path) -> bytearray:
    """The run's trained parameters and state, as they lie in the arena. Raises `DataError` without a checkpoint."""
    from edgetrain.run.files.trained import load_trained, open_run

    run = open_run(folder)
    saved = bytearray(run.program.manifest.saved_bytes)
    load_trained(run, memoryview(saved))
    return saved


def description_of(folder: Path) -> dict[str, str]:
    """Files that say how to read data for the run's model."""
    from edgetrain.run.files.trained import open_run
    from edgetrain.run.predict.bundle import bundle_files
    from edgetrain.run.predict.task import describe

    run = open_run(folder)
    described = describe(run.recipe, run.reading, run.program.graph, inputs=run.inputs, output=run.output)
    return bundle_files(described)


def export_peft(folder: Path, out: Path, console: Console, *, trust_program: bool = False) -> None:
    """Writes a LoRA run's adapters in PEFT's layout. Raises `UsageError` for a run without any."""
    from edgetrain.cli.request import job_of
    from edgetrain.graph.adapters import Adapter, beside_from_json
    from edgetrain.graph.ir import Role
    from edgetrain.pipeline.own_program import open_own_run
    from edgetrain.pipeline.stages import compile_job
    from edgetrain.run.files.folders import JobRecord
    from edgetrain.run.files.peft import write_peft
    from edgetrain.run.files.trained import trained_engine

    run_of = open_own_run(folder, trust_program=trust_program, notify=console.warn)
    with StageProgress(console) as stages:
        job = job_of(argparse.Namespace(), run_of.recipe, console, progress=stages, stored=JobRecord.read(folder))
        facts = compile_job(job).compiled.facts
    adapters = [a for a in map(beside_from_json, facts["adapters"]) if isinstance(a, Adapter)]
    if not adapters:
        raise UsageError(f"`{folder}` has no adapters to export", fix="train with `update.mode=lora`")
    matrices = {name for a in adapters for name in (a.down, a.up)}
    with trained_engine(run_of, threads=1) as engine:
        parameters = {t.name: engine.tensor(t.name) for t in run_of.program.graph.by_role(Role.PARAMETER)}
        whole = [name for name in facts["trained"] if name not in matrices]
        write_peft(out, parameters, adapters, whole=whole, base_model=run_of.recipe.model.source)


def program_of(folder: Path, console: Console) -> Artifact:
    """The run's program for its target: the one in the folder, or from the build cache where that is another device."""
    from edgetrain.cli.request import job_of
    from edgetrain.pipeline.job import encrypts_pages
    from edgetrain.pipeline.stages import compile_job
    from edgetrain.program.artifact import load_artifact
    from edgetrain.program.build import build_program
    from edgetrain.run.files.folders import JobRecord
    from edgetrain.run.files.run_folder import RunFolder
    from edgetrain.run.files.trained import read_recipe

    run_folder = RunFolder(folder)
    recipe, record = read_recipe(run_folder), JobRecord.read(folder)
    program = load_artifact(run_folder.program)
    if record is None or record.target == program.manifest.target_name:
        return program
    with StageProgress(console) as stages:
        job = job_of(argparse.Namespace(), recipe, console, progress=stages, stored=record)
        planned = compile_job(job).plan()
    return build_program(
        planned.compiled, planned.plan, job.device, cache=job.cache, encrypts_pages=encrypts_pages(job)
    )


VERB = Verb(
    name="export",
    summary="take the trained ONNX model or the C program out of a run",
    description=(
        "Writes the trained model as ONNX, or the compiled training program as a folder: a C library, its header, the "
        "driver's source, the trained parameters and a manifest. Neither needs Python or TVM where it is used."
    ),
    words="RUN",
    least_words=1,
    most_words=1,
    flags=(
        Flag(name="--onnx", metavar="FILE", parse=to_path, help="write the trained model there"),
        Flag(name="--program", metavar="DIR", parse=to_path, help="write the program for the run's target there"),
        Flag(
            name="--safetensors",
            metavar="FILE",
            parse=to_path,
            help="write the trained weights there, by their names in the ONNX file: PyTorch reads them",
        ),
        Flag(name="--peft", metavar="DIR", parse=to_path, help="write a LoRA run's adapters there, as PEFT reads them"),
        Flag(
            name="--trust-program",
            help="with --peft, run the program in the folder, whoever built it: it is machine code",
        ),
    ),
    examples=(
        "edgetrain export runs/digits --onnx trained.onnx",
        "edgetrain export runs/digits --program digits-program",
        "edgetrain export runs/digits --safetensors trained.safetensors",
    ),
    run=run,
)
