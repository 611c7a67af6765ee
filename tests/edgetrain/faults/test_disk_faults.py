"""Every call to the disk fails once, in every way: readers see the old state or the new, and a second try succeeds."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgetrain.files.atomic_file import disk_errors, replaced_file, sweep_staged
from edgetrain.files.atomic_folder import scratch_directory, sweep_beside
from edgetrain.files.build_cache import BuildCache, cache_key, file_sha256
from edgetrain.files.sealed import is_whole_model
from edgetrain.program.manifest import FORMAT
from edgetrain.program.replace_folder import MANIFEST, put_in_place
from edgetrain.recipes import FORMAT as RECIPE_FORMAT
from edgetrain.report.run_page import write_run_page
from edgetrain.run.files.checkpoint import PREVIOUS, Progress, read_run_header, save_run_checkpoint
from edgetrain.run.files.claim import new_run_folder
from edgetrain.run.files.export import write_trained_onnx
from edgetrain.run.files.folders import JobRecord, is_resumable
from edgetrain.run.files.report import REPORT, write_report
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.loop.step_log import LOG, StepRecord, open_log, read_records
from edgetrain_tuner import disk
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.jsonl import write_lines
from edgetrain_tuner.cache.remotes.folder import FolderRemote
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.teams import Team, remembered_teams
from tests.edgetrain.faults.faulty_disk import ALL, FEW
from tests.edgetrain.faults.walk import RecordProperty, Scenario, walk
from tests.edgetrain.report.run_folders import learned_classes, report, write_run
from tests.edgetrain_tuner.cache.entries import entry

PROGRAM = "ab" * 32
KEY = cache_key("faults")


def save(step: int) -> Callable[[Path], object]:
    progress = Progress(step=step, position=(0, step), steps_per_epoch=9, seed=0)
    saved = memoryview(bytes([step]) * 3000)  # more than one piece would be no other case
    return lambda root: save_run_checkpoint(root, saved, progress, program_sha256=PROGRAM)


def saved_step(root: Path) -> str:
    """What a run that resumes would load, verified."""
    if not is_resumable(root):
        return "none"
    return str(read_run_header(root, program_sha256=PROGRAM, saved_bytes=3000).progress.step)


def several(*acts: Callable[[Path], object]) -> Callable[[Path], object]:
    def act(root: Path) -> None:
        for each in acts:
            each(root)

    return act


def step_record(step: int) -> StepRecord:
    return StepRecord(step=step, epoch=1, loss=0.5, learning_rate=0.1, seconds=0.01)


def log_from(after_step: int, *steps: int) -> Callable[[Path], object]:
    def act(root: Path) -> None:
        log = open_log(root / LOG, after_step=after_step)
        try:
            for step in steps:
                log.write(step_record(step))
            log.sync()
        finally:
            log.close()

    return act


def tear_last_line(root: Path) -> None:
    with (root / LOG).open("ab") as file:
        file.write(b'{"step": 4, "epo')


def logged(root: Path) -> str:
    return ",".join(str(record["step"]) for record in read_records(root / LOG))


def claim(root: Path) -> None:
    with new_run_folder(root / "runs" / "digits", "digits") as folder:
        with replaced_file(RunFolder(folder).recipe) as file:
            file.write(json.dumps({"format": RECIPE_FORMAT}).encode())
        JobRecord(target="host", solver="milp").write(folder)


def claimed(root: Path) -> str:
    found = JobRecord.read(root / "runs" / "digits")
    return found.target if found is not None else "none"


def content(name: str) -> Callable[[Path], str]:
    def read(root: Path) -> str:
        path = root / name
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "none"

    return read


def make_run(root: Path) -> None:
    write_run(root, learned=learned_classes())
    write_run_page(root)


def write_other_report(root: Path) -> None:
    write_report(report(steps=2, losses=(9.0, 8.0), loss_steps=()), root)


def write_page_of_other_report(root: Path) -> None:
    write_run_page(root, with_samples=False)


def tiny_model(root: Path) -> None:
    weights = numpy_helper.from_array(np.zeros((2, 2), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("x", "y")]
    graph = helper.make_graph([node], "tiny", infos[:1], infos[1:], [weights])
    onnx.save(helper.make_model(graph), str(root / "given.onnx"))


def write_model(value: float) -> Callable[[Path], object]:
    def act(root: Path) -> None:
        write_trained_onnx(
            root / "given.onnx", {"w": np.full((2, 2), value, np.float32)}, root / "model.onnx", output="y"
        )

    return act


def whole_model(root: Path) -> str:
    path = root / "model.onnx"
    if not path.exists():
        return "none"
    data = path.read_bytes()
    return hashlib.sha256(data).hexdigest() if is_whole_model(data) else "damaged"


def build(out: Path) -> None:
    (out / "below").mkdir()
    disk.write_file(out / "below" / "kernels.o", bytes(5000))
    disk.write_file(out / "facts.json", b"{}")


def put(root: Path) -> None:
    cache = BuildCache(root / "cache")
    cache.sweep()
    cache.put(KEY, build)


def got(root: Path) -> str:
    return "whole" if BuildCache(root / "cache").get(KEY) is not None else "none"


def damage(root: Path) -> None:
    (root / "cache" / KEY[:2] / KEY[2:] / "facts.json").write_text("{ }")


def trim(root: Path) -> None:
    cache = BuildCache(root / "cache")
    cache.sweep()
    for path in (root / "cache").rglob("*"):
        os.utime(path, (0, 0))
    cache.trim(0)


def swept(root: Path) -> None:
    BuildCache(root / "cache").sweep()


def program(word: str, *names: str) -> Callable[[Path], object]:
    """Puts a program in place whose files hold a word."""

    def act(root: Path) -> None:
        with disk_errors(root / "program"), scratch_directory(root / "program") as scratch:
            built = scratch / "artifact"
            built.mkdir()
            for name in names:
                disk.write_file(built / name, word.encode())
            files = {name: file_sha256(built / name) for name in names}
            text = json.dumps({"format": FORMAT, "files": files})
            disk.write_file(built / MANIFEST, text.encode())
            put_in_place(built, root / "program")

    return act


def whole_program(root: Path) -> str:
    """As `load_artifact` sees it: whole, or not there, which a run that resumes writes again."""
    try:
        manifest = json.loads((root / "program" / MANIFEST).read_text())
        whole = all(file_sha256(root / "program" / name) == value for name, value in manifest["files"].items())
    except OSError:
        return "none"
    return (root / "program" / "driver.c").read_text() if whole else "damaged"


def sweep_program(root: Path) -> None:
    sweep_beside(root / "program", is_held=True)


ENTRIES = [entry(number) for number in range(3)]


def store(*numbers: int) -> Callable[[Path], object]:
    def act(root: Path) -> None:
        with Store.open(root / "user.sqlite") as opened:
            opened.put_all(ENTRIES[number] for number in numbers)

    return act


def stored(root: Path) -> str:
    if not (root / "user.sqlite").exists():
        return "0 of 0"
    with Store.open(root / "user.sqlite") as opened:
        return f"{len(list(opened))} of {len(opened)}"


def export(root: Path) -> None:
    with Store.open(root / "user.sqlite") as opened:
        write_lines(root / "out.jsonl", opened)


def remember(root: Path) -> None:
    Team(url="https://example.org/cache", folder=root / "teams").remember()


def remembered(root: Path) -> str:
    return ",".join(team.url for team in remembered_teams(root / "teams"))


def give(root: Path) -> None:
    remote = FolderRemote(root / "shared")
    for one in ENTRIES[:2]:
        remote.put(one)


def given(root: Path) -> str:
    remote = FolderRemote(root / "shared")
    found = remote.changes("").listed if (root / "shared").is_dir() else ()
    return str(len([remote.get(listed.id) for listed in found]))


def is_of_sqlite(name: str) -> bool:
    return name.endswith(("-wal", "-shm", ".lock"))


TUNER = (OSError, sqlite3.Error, CacheError)
SCENARIOS = (
    Scenario(name="first checkpoint", act=save(1), read=saved_step, sweep=sweep_staged, stays=PREVIOUS.__eq__),
    Scenario(name="second checkpoint", prepare=save(1), act=save(2), read=saved_step, sweep=sweep_staged),
    Scenario(
        name="third checkpoint", prepare=several(save(1), save(2)), act=save(3), read=saved_step, sweep=sweep_staged
    ),
    Scenario(
        name="step log after a torn line",
        prepare=several(log_from(0, 1, 2, 3), tear_last_line),
        act=log_from(3, 4, 5, 6),
        read=logged,
        between=("1,2,3,4", "1,2,3,4,5"),
    ),
    Scenario(name="claim of a run folder", act=claim, read=claimed),
    Scenario(
        name="report",
        prepare=make_run,
        act=write_other_report,
        read=content(REPORT),
        sweep=sweep_staged,
    ),
    Scenario(
        name="report page",
        prepare=make_run,
        act=write_page_of_other_report,
        read=content("report.html"),
        sweep=sweep_staged,
    ),
    Scenario(
        name="trained model",
        prepare=several(tiny_model, write_model(1.0)),
        act=write_model(2.0),
        read=whole_model,
        sweep=sweep_staged,
    ),
    Scenario(name="build cache", act=put, read=got),
    Scenario(name="damaged entry of the build cache", prepare=several(put, damage), act=put, read=got),
    Scenario(name="trimmed build cache", prepare=put, act=trim, read=got, is_durable=False),
    Scenario(
        name="first program", act=program("new", "driver.c", "plan.json"), read=whole_program, sweep=sweep_program
    ),
    Scenario(
        name="replaced program",
        prepare=program("old", "driver.c", "plan.json"),
        act=program("new", "driver.c"),
        read=whole_program,
        sweep=sweep_program,
        between=("none",),
    ),
    Scenario(name="first schedules", act=store(0), read=stored, stays=is_of_sqlite, may_say=TUNER),
    Scenario(
        name="more schedules", prepare=store(0), act=store(0, 1, 2), read=stored, stays=is_of_sqlite, may_say=TUNER
    ),
    Scenario(
        name="exported schedules",
        prepare=store(0, 1),
        act=export,
        read=content("out.jsonl"),
        stays=is_of_sqlite,
        may_say=TUNER,
    ),
    Scenario(name="remembered team", act=remember, read=remembered, may_say=TUNER),
    Scenario(name="shared schedules", act=give, read=given, between=("1",), may_say=TUNER),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_call_may_fail(scenario: Scenario, tmp_path: Path, record_property: RecordProperty) -> None:
    walked = walk(scenario, tmp_path / "walk", FEW)
    walked.record(scenario.name, record_property)
    assert walked.points >= 20  # else the walk tried next to nothing


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_call_may_fail_in_every_way(scenario: Scenario, tmp_path: Path, record_property: RecordProperty) -> None:
    walked = walk(scenario, tmp_path / "walk", ALL)
    walked.record(scenario.name, record_property)
    assert walked.by_fault.keys() == {fault.name for fault in ALL}
