"""Tuning through a command leaves schedules for the device's target; a lost device costs nothing that was learned."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from edgetrain.compiler.measure.runners import Runner
from edgetrain.compiler.schedules import ScheduleStores
from edgetrain.compiler.tuner_view import schedule_target
from edgetrain.errors import DeviceError, UsageError
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.recipes import load_recipe
from edgetrain.targets.host import machine_id, read_host
from edgetrain.targets.profile import load_target
from edgetrain.toolchain.c_compiler import host_triple
from edgetrain.tuning.device_report import DeviceReport, DeviceRow
from edgetrain.tuning.tune import Allowance, weights_of
from edgetrain.tuning.tune_device import device_id, runner_for, tune_through
from edgetrain_tuner.cache.entry import Entry
from tests.edgetrain.cli.test_entry import assert_golden

SMALL = ("train.epochs=1", "train.schedule=constant", "data.limit=64", "data.test_limit=32", "train.batch=8")
# A device that answers without computing: each candidate takes half of the rule's time. After some answers it is gone.
_SCRIPTED = """
import pathlib, sys
count, answers = pathlib.Path(sys.argv[1]), int(sys.argv[2])
so_far = int(count.read_text()) if count.exists() else 0
count.write_text(str(so_far + 1))
sys.stdin.read()
print("edgetrain-trial began", flush=True)
if so_far >= answers:
    print("client_loop: send disconnect: Broken pipe")
    sys.exit(255)
print("edgetrain-trial result 1e-7 1e-3 2e-3 5")
print("edgetrain-trial ended 0")
"""


def _scripted(folder: Path, *, answers: int = 1_000_000) -> str:
    return shlex.join((sys.executable, "-c", _SCRIPTED, str(folder / "count"), str(answers)))


def scripted_emulator(folder: Path, *, error: str) -> Path:
    """Says of every second program that it is wrong by so much: the first opens a kernel, the second is its trial."""
    path, opened = folder / "qemu-aarch64-static", folder / "opened"
    path.write_text(
        f"#!/bin/sh\nerror=0\nif [ -e {opened} ]; then rm {opened}; error={error}; else : > {opened}; fi\n"
        "echo edgetrain-trial began\necho edgetrain-trial result $error 0 0 0\n"
    )
    path.chmod(0o700)
    return path


def _job(build_cache: BuildCache, stores: Path, target: str = "raspberry-pi-4") -> Job:
    return Job(
        recipe=load_recipe("digits", SMALL),
        target=load_target(target),
        cache=build_cache,
        stores=ScheduleStores(folder=stores),
        threads=2,
    )


def _stored(stores: Path) -> list[Entry]:
    with ScheduleStores(folder=stores).opened() as levels:
        return list(levels.user)


@pytest.mark.compile
def test_what_was_measured_is_kept_for_the_target_and_fit_uses_it(build_cache: BuildCache, tmp_path: Path) -> None:
    job = _job(build_cache, tmp_path / "stores")
    runner = runner_for(job, _scripted(tmp_path))
    report = tune_through(job, Allowance(trials=4), runner, today="2026-01-31")
    stored = _stored(tmp_path / "stores")
    assert report.outcomes == {"measured": 4}
    assert len(stored) == report.entries == 4
    assert {entry.target for entry in stored} == {schedule_target(job.device.codegen)}
    assert {m.machine for entry in stored for m in entry.measurements} == {device_id(runner)} != {machine_id()}
    winners = [entry for entry in stored if entry.outcome == "faster"]
    assert len(winners) == sum(row.speedup == 2.0 for row in report.kernels) > 0
    fitted = fit(job, tmp_path / "run")
    assert fitted.kernels["from_cache"] == {"user": len(winners)}
    other = fit(_job(build_cache, tmp_path / "stores", "host"), tmp_path / "here")
    assert other.kernels["from_cache"] == {}, "what holds there says nothing of this machine"


@pytest.mark.compile
def test_a_device_that_is_lost_midway_loses_nothing(build_cache: BuildCache, tmp_path: Path) -> None:
    job = _job(build_cache, tmp_path / "stores")
    runner = runner_for(job, _scripted(tmp_path, answers=4))  # opens a kernel, and tries three times
    with pytest.raises(DeviceError, match="ended with 255 before the trial did") as caught:
        tune_through(job, Allowance(trials=50), runner, today="2026-01-31")
    stored = _stored(tmp_path / "stores")
    assert len(stored) == 3
    assert [entry.outcome for entry in stored].count("faster") == 1
    assert caught.value.what.endswith("what was learned until then is stored: 3 schedules")
    assert caught.value.why == "client_loop: send disconnect: Broken pipe"
    assert caught.value.exit_code == 6


@pytest.mark.compile
def test_schedules_are_timed_in_earnest_through_a_command(build_cache: BuildCache, tmp_path: Path) -> None:
    """The device is this machine: its own instruction set under another name."""
    job = _job(build_cache, tmp_path / "stores")
    isa = read_host().isa
    codegen = dataclasses.replace(
        job.device.codegen, triple=host_triple().text, cpu=isa.cpu, features=isa.features, cores=2
    )
    job = dataclasses.replace(job, target=job.target.with_device(name="twin", codegen=codegen))
    report = tune_through(job, Allowance(trials=4), runner_for(job, "env"), today="2026-01-31")
    assert report.outcomes == {"measured": 4}
    assert all(entry.check.largest_error <= 1e-4 for entry in _stored(tmp_path / "stores"))
    assert all(row.seconds >= row.tuned_seconds > 0 for row in report.kernels)
    assert "the step itself was not run there" in report.to_text()


@pytest.mark.compile
def test_an_emulator_checks_and_stores_no_time(build_cache: BuildCache, tmp_path: Path) -> None:
    if shutil.which("qemu-aarch64-static") is None:
        pytest.skip("needs qemu-aarch64-static: apt-get install qemu-user-static")
    job = _job(build_cache, tmp_path / "stores")
    report = tune_through(job, Allowance(trials=5), runner_for(job, "emulator"), today="2026-01-31")
    assert report.outcomes == {"checked": 5}
    assert report.is_good
    assert report.entries == 0
    assert _stored(tmp_path / "stores") == []
    assert "raspberry-pi-4, emulated: checked, not timed" in report.to_text()


@pytest.mark.compile
def test_what_an_emulator_finds_wrong_is_kept_as_failed(build_cache: BuildCache, tmp_path: Path) -> None:
    job = _job(build_cache, tmp_path / "stores")
    runner = Runner(command=(str(scripted_emulator(tmp_path, error="0.5")),), is_emulated=True)
    report = tune_through(job, Allowance(trials=2), runner, today="2026-01-31")
    stored = _stored(tmp_path / "stores")
    assert not report.is_good
    assert report.outcomes == {"wrong": 2}
    assert report.entries == len(stored) == 2
    assert {(entry.outcome, entry.measurements) for entry in stored} == {("failed", ())}


@pytest.mark.compile
def test_a_device_on_which_nothing_can_be_tried_is_said(
    build_cache: BuildCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose processor does not know the target's instructions. Two kernels are enough to see it."""
    monkeypatch.setattr(
        "edgetrain.tuning.tune_device.weights_of", lambda *given: dict(sorted(weights_of(*given).items())[:2])
    )
    job = _job(build_cache, tmp_path / "stores")
    text = "cat > /dev/null; echo edgetrain-trial began; echo edgetrain-trial ended 132"
    with pytest.raises(DeviceError, match="none of 2 kernels could be tried on raspberry-pi-4") as caught:
        tune_through(job, Allowance(trials=5), Runner(command=("sh", "-c", text)), today="2026-01-31")
    assert "the default schedule ended with 132 on the device" in caught.value.why
    assert _stored(tmp_path / "stores") == []


def test_this_machine_needs_no_runner(build_cache: BuildCache, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the target is this machine"):
        runner_for(_job(build_cache, tmp_path, "host"), "ssh pi@host")


@pytest.mark.parametrize("text", ["ssh pi@host", "emulator"])
def test_a_board_without_an_operating_system_is_refused_with_what_works(
    text: str, build_cache: BuildCache, tmp_path: Path
) -> None:
    with pytest.raises(DeviceError, match="cortex-m7 cannot be tried through a command") as caught:
        runner_for(_job(build_cache, tmp_path, "cortex-m7"), text)
    assert "cache pull" in caught.value.fix


def _row(**changes: object) -> DeviceRow:
    row = DeviceRow(
        name="conv2d_relu of stem.weight",
        symbol="k0",
        calls=2,
        source="tuned",
        schedule="packed-product rows 4",
        seconds=2e-3,
        tuned_seconds=1e-3,
        largest_error=3e-7,
        outcomes={"measured": 10, "crashed": 1},
    )
    return dataclasses.replace(row, **changes)  # type: ignore[arg-type]


def _report(*rows: DeviceRow, is_emulated: bool = False) -> DeviceReport:
    return DeviceReport(
        model="digits",
        target="raspberry-pi-4",
        runner="ssh pi@host",
        is_emulated=is_emulated,
        entries=11,
        untried=2,
        kernels=rows,
    )


def test_the_table_says_what_each_kernel_takes_alone() -> None:
    rule = _row(name="sum", calls=1, source="rule", tuned_seconds=2e-3)
    failed = _row(name="softmax", source="rule", seconds=0.0, tuned_seconds=0.0, outcomes={}, failure="no memory")
    report = _report(_row(), rule, failed)
    assert_golden("tuned-on-device.txt", report.to_text())
    assert report.to_json()["trials"] == 22


def test_an_emulated_check_says_that_nothing_was_timed() -> None:
    right, wrong = _row(outcomes={"checked": 4, "timed out": 1}), _row(name="sum", calls=1, outcomes={"wrong": 2})
    assert_golden("checked-by-emulator.txt", _report(right, wrong, is_emulated=True).to_text())
    assert _report(right, is_emulated=True).is_good
    assert not _report(right, wrong, is_emulated=True).is_good
    assert not _report(right, _row(failure="no memory"), is_emulated=True).is_good


def test_kernels_beyond_the_table_are_counted() -> None:
    assert "and 2 more; --json has all of them" in _report(*(_row(),) * 22).to_text()
