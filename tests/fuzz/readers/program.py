"""The JSON files of a compiled program. The first line names the file: `manifest.json`, `graph.json` or `plan.json`.

Beside a graph or plan lies a report, with which `edgetrain report` reads them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from edgetrain.errors import DataError
from edgetrain.program.artifact import load_artifact
from edgetrain.program.manifest import manifest_from_json, manifest_to_json
from edgetrain.program.replace_folder import require_replaceable
from edgetrain.report.run_record import read_run
from tests.fuzz.harness import CORPUS, Change, documented, file_of
from tests.fuzz.mutations import mutate_json

_REPORT = CORPUS / "run_files" / "report.json"


def one_input(data: bytes) -> None:
    name, _, content = data.partition(b"\n")
    if name == b"manifest.json":
        with file_of(content, "program/manifest.json") as path:
            _read_manifest(path, content)
    elif name in (b"graph.json", b"plan.json"):
        with documented(), file_of(content, f"program/{name.decode()}") as path:
            folder = path.parent.parent
            (folder / "report.json").write_bytes(_REPORT.read_bytes().partition(b"\n")[2])
            read_run(folder)


def _read_manifest(path: Path, content: bytes) -> None:
    with documented():
        load_artifact(path.parent)
    with documented():
        require_replaceable(path.parent)
    with documented(UnicodeDecodeError):
        manifest = manifest_from_json(content.decode(), where="manifest.json")
        try:
            again = manifest_from_json(manifest_to_json(manifest), where="the same")
        except DataError as error:
            raise AssertionError("what is accepted is written so that it is accepted") from error
        assert manifest_to_json(again) == manifest_to_json(manifest)


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    name, _, content = data.partition(b"\n")
    return name + b"\n" + mutate_json(content, random, change)
