"""A whole run's traffic, every call of it: whatever fails, the run goes on to the same bits, log, table and report."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.sealed import parse_sealed
from edgetrain.recipes import FORMAT as RECIPE_FORMAT
from edgetrain.run.files.checkpoint import PREVIOUS
from edgetrain.run.files.claim import new_run_folder, resumed_run_folder
from edgetrain.run.files.epochs import EPOCHS
from edgetrain.run.files.folders import JOB, JobKeeper, JobRecord, is_resumable
from edgetrain.run.files.report import PLOT, REPORT, write_report
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.sessions import SESSIONS, SessionKeeper, read_sessions
from edgetrain.run.files.tensorboard import TENSORBOARD, TensorBoard
from edgetrain.run.files.trained import newest_checkpoint
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.sensors.energy import EnergyMeter
from tests.edgetrain.faults.faulty_disk import ALL, FEW, Fault
from tests.edgetrain.faults.walk import RecordProperty, Scenario, walk
from tests.edgetrain.report.run_folders import report
from tests.edgetrain.run.small_run import SETTINGS, STEPS_PER_EPOCH, logged_steps, logged_validations, run

SHORT = replace(SETTINGS, epochs=2)
STEPS = 2 * STEPS_PER_EPOCH
BEGUN = "begun"


def fit(root: Path) -> None:
    """What `fit` does to a run folder, in its order; it goes on where there is something to go on from."""
    out = root / "run"
    resume = is_resumable(out)
    folder = resumed_run_folder(out) if resume else new_run_folder(out, "small")
    with folder as claimed:
        with replaced_file(RunFolder(claimed).recipe) as file:
            file.write(json.dumps({"format": RECIPE_FORMAT}).encode())
        sessions = claimed / SESSIONS
        keeper = SessionKeeper(
            sessions,
            read_sessions(sessions) if resume else (),
            EnergyMeter(None),
            joules_per_step=0.5,
            clock=itertools.count(10.0).__next__,
        )
        callbacks: tuple[Callback, ...] = (
            keeper,
            JobKeeper(JobRecord(target="host", solver="milp"), claimed),
            TensorBoard(claimed / TENSORBOARD, clock=lambda: 5.0),
        )
        try:
            bits, outcome = run(claimed, SHORT, resume=resume, callbacks=callbacks)
        finally:
            keeper.write()
        digest = hashlib.sha256(bits).hexdigest()
        write_report(report(steps=outcome.progress.step, parameters_sha256=digest, losses=(), loss_steps=()), claimed)


def state(root: Path) -> str:
    """How far the run is, with the bits that it would go on from; of a finished one, all that it says."""
    out = root / "run"
    if not is_resumable(out):
        return BEGUN
    if (out / REPORT).exists():
        parameters = parse_sealed((out / REPORT).read_bytes())["parameters_sha256"]
        table = (out / EPOCHS).read_text()
        return f"finished {parameters} {logged_steps(out)} {logged_validations(out)} {table} {_seen(out)}"
    return _checkpoint(out)


def _seen(out: Path) -> list[bool]:
    return [(out / name).exists() for name in (JOB, SESSIONS, PLOT)]


def _checkpoint(out: Path) -> str:
    """The step and the bits of the one that a resumed run would load."""
    data = newest_checkpoint(out).read_bytes()
    body, seal = data[:-32], data[-32:]
    assert hashlib.sha256(body).digest() == seal
    header = 16 + int.from_bytes(data[8:16], "little")
    return f"step {json.loads(data[16:header])['progress']['step']} {hashlib.sha256(body[header:]).hexdigest()}"


class StopAfter(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, step: int, logs: Logs) -> None:
        self.stop_training = step >= self._step


def stops(folder: Path) -> tuple[str, ...]:
    """The undisturbed run's state after each step."""
    found = []
    for step in range(1, STEPS + 1):
        run(folder / str(step), SHORT, callbacks=(StopAfter(step),))
        found.append(_checkpoint(folder / str(step)))
    return tuple(found)


def whole_run(folder: Path) -> Scenario:
    return Scenario(
        name="a whole run",
        act=fit,
        read=state,
        between=(BEGUN, *stops(folder)),
        stays=lambda name: name.startswith("run/tensorboard/") or name.endswith(PREVIOUS),
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_every_call_of_a_run_may_fail(fault: Fault, tmp_path: Path, record_property: RecordProperty) -> None:
    walked = walk(whole_run(tmp_path / "stops"), tmp_path / "walk", [fault])
    walked.record("a whole run", record_property)
    assert walked.points > 50


def test_a_run_goes_on_to_the_same_bits_whatever_call_fails(tmp_path: Path, record_property: RecordProperty) -> None:
    walked = walk(whole_run(tmp_path / "stops"), tmp_path / "walk", FEW, every=23)
    walked.record("a whole run, some calls", record_property)
    assert walked.points >= 4 * 4
