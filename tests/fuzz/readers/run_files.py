"""The JSON files of a run folder. The first line names the file, the rest is its content, sealed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from edgetrain.compiler.schedules import read_records
from edgetrain.files.sealed import sealed
from edgetrain.recipes import Recipe
from edgetrain.report.run_record import read_run
from edgetrain.run.files.data_identity import require_same_data
from edgetrain.run.files.finished import read_report
from edgetrain.run.files.folders import JobRecord, files_of_others, is_resumable
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.sessions import read_sessions
from edgetrain.run.files.trained import read_reading, read_recipe
from edgetrain.run.learned.learned import read_learned
from tests.fuzz.harness import Change, documented, file_of
from tests.fuzz.mutations import mutate_json


def _recipe(folder: Path) -> None:
    recipe = read_recipe(RunFolder(folder))
    assert Recipe.from_json(recipe.to_json()) == recipe
    is_resumable(folder)
    files_of_others(folder)


def _report(folder: Path) -> None:
    with documented():
        report = read_report(RunFolder(folder))
        report.to_text()
        repr(report)
    record = read_run(folder)
    _ = record.scores, record.metric, record.best


_READERS: Mapping[str, Callable[[Path], object]] = {
    "data.json": lambda folder: require_same_data(folder / "data.json", "0" * 64),
    "job.json": JobRecord.read,
    "learned.json": read_learned,
    "reading.json": lambda folder: read_reading(RunFolder(folder), None),
    "recipe.json": _recipe,
    "report.json": _report,
    "schedules.json": lambda folder: read_records(folder / "schedules.json"),
    "sessions.json": lambda folder: read_sessions(folder / "sessions.json"),
}
NAMES = tuple(_READERS)


def one_input(data: bytes) -> None:
    name, _, content = data.partition(b"\n")
    read = _READERS.get(name.decode("latin-1"))
    if read is None:
        return
    for sealing in (False, True):
        with documented(), file_of(_sealed(content) if sealing else content, name.decode()) as path:
            read(path.parent)


def _sealed(content: bytes) -> bytes:
    try:
        return sealed(content.decode()).encode()
    except UnicodeDecodeError:
        return content


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    name, _, content = data.partition(b"\n")
    return name + b"\n" + mutate_json(content, random, change)
