"""`edgetrain import-weights`: what a device trained with an exported program, back as an ONNX model."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from edgetrain.cli.command import Flag, Verb, to_path
from edgetrain.cli.console import Console
from edgetrain.errors import DataError, UsageError
from edgetrain.files.regular_file import require_regular

if TYPE_CHECKING:
    from edgetrain.program.manifest import Manifest


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.cli.export import trained_bytes
    from edgetrain.run.files.imported import import_weights
    from edgetrain.run.files.trained import open_run

    folder, trained = (Path(word) for word in arguments.words)
    out = arguments.onnx or trained.with_suffix(".onnx")
    if arguments.onnx is None and out.exists():
        raise UsageError(f"`{out}` exists", why="writing there would replace it", fix="say where with --onnx FILE")
    opened = open_run(folder)
    manifest = program_manifest(folder, arguments.program, console)
    found = import_weights(opened, trained, out, manifest=manifest, shipped=bytes(trained_bytes(folder)))
    if not found.changed:
        console.warn(
            f"no parameter in {trained} differs from the run's: the device has not trained, or saved too early"
        )
    written = {"onnx": str(out), "parameters": found.parameters, "changed": found.changed}
    text = f"onnx {out}\n{found.changed} of {found.parameters} parameters differ from the run's\n"
    console.data(json.dumps(written) + "\n" if console.as_json else text)
    console.say(f"hint: `edgetrain predict {shlex.quote(str(out))} FILES` uses it")
    return 0


def program_manifest(folder: Path, program: Path | None, console: Console) -> Manifest:
    """That of the exported folder, whose parameters a device may have changed; else of the run's own program."""
    from edgetrain.cli.export import program_of
    from edgetrain.program.manifest import manifest_from_json
    from edgetrain.program.replace_folder import MANIFEST

    if program is None:
        return program_of(folder, console).manifest
    path = program / MANIFEST
    require_regular(path, DataError)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{program} is not a compiled program",
            why=f"{MANIFEST} cannot be read: {error}",
            fix="give the folder that `edgetrain export RUN --program DIR` wrote",
        ) from error
    return manifest_from_json(text, where=str(path))


VERB = Verb(
    name="import-weights",
    summary="turn what a device trained with the C program back into ONNX",
    description=(
        "Reads the parameters that an exported program saved on a device, the first EDGE_SAVED_BYTES of its arena, and "
        "writes the run's model with them: class names and all that `predict` needs come along. The bytes must have "
        "the program's size and hold numbers only. Without --onnx the model is written beside TRAINED.bin."
    ),
    words="RUN TRAINED.bin",
    least_words=2,
    most_words=2,
    flags=(
        Flag(name="--onnx", metavar="FILE", parse=to_path, help="write the model there"),
        Flag(
            name="--program",
            metavar="DIR",
            parse=to_path,
            help="the exported program that ran on the device; without it, the run's program for its target",
        ),
    ),
    examples=(
        "edgetrain import-weights runs/digits trained.bin",
        "edgetrain import-weights runs/digits trained.bin --onnx from-device.onnx",
    ),
    run=run,
)
