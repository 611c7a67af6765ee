"""Walks a scenario through every fault at every call, and counts: `walk` is what the tests of this folder share."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgetrain.cli.failure import as_edgetrain_error
from edgetrain.errors import DeviceError, EdgetrainError
from tests.edgetrain.faults.faulty_disk import Fault, FaultyDisk, ProcessEnded

_MOST_CALLS = 3000
_LONG_AGO_S = 2 * 86_400.0

RecordProperty = Callable[[str, object], None]
State = str  # what a reader sees, in a word that says all that matters about it


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`act` takes the folder from one state to another; `read` says in which it is, as the product's readers see it."""

    name: str
    act: Callable[[Path], object]
    read: Callable[[Path], State]
    prepare: Callable[[Path], object] = lambda _: None
    sweep: Callable[[Path], object] = lambda _: None  # what the next start does before anything else
    stays: Callable[[str], bool] = lambda _: False  # names of files that only the disturbed way leaves, and may
    between: Sequence[State] = ()  # states on the way that are whole as well
    is_durable: bool = True  # once `act` has ended, a power cut takes nothing back
    may_say: tuple[type[Exception], ...] = ()  # errors of the tuner, which the command line gives our words


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """How many calls had their fault, of which kind, and after how many all was well."""

    points: int
    recovered: int
    by_fault: Mapping[str, int]

    def record(self, scenario: str, record_property: RecordProperty) -> None:
        """For a JUnit file: `pytest --junitxml=FILE`, and sum up `fault_points` and `recovered`."""
        record_property("scenario", scenario)
        record_property("fault_points", self.points)
        record_property("recovered", self.recovered)


def walk(scenario: Scenario, folder: Path, faults: Sequence[Fault], *, every: int = 1) -> Walked:
    """Each fault at the first call, the second, and so on until `act` needs no fault; with `every` at each n-th call.

    After each: the error is one of ours, readers see the old state or the new, and once more `act` gives the new state
    with no file that the undisturbed way does not leave. An `AssertionError` names the fault and the call.
    """
    folder.mkdir(exist_ok=True)
    root = folder / "run"  # the same each time: a report shows its name
    start = folder / "start"
    old, new, files = _undisturbed(scenario, root, start)
    counts: dict[str, int] = {}
    for fault in faults:
        for at in range(1, _MOST_CALLS, every):
            shutil.copytree(start, root)
            disk = FaultyDisk(root=root, fault=fault, at=at)
            where = f"{scenario.name}: {fault.name} at call {at}"
            try:
                _act(scenario, disk, where)
                if not disk.happened:
                    if fault.is_power_cut and scenario.is_durable:
                        disk.cut_power()
                        assert scenario.read(root) == new, f"{where}, which is after the last: it did not last"
                    break
                where = f"{where}, `{disk.happened}`"
                if fault.number == errno.ENOSPC:  # removing takes no room, so that nothing is an excuse
                    left = _files(root) - _files(start) - files
                    assert not [name for name in left if not scenario.stays(name)], f"{where}: {sorted(left)} are left"
                _check(scenario, root, (old, new, *scenario.between), new, files, where)
            finally:
                for path in (root, root.with_name(f"{root.name}.shadow"), root.with_name(f"{root.name}.picture")):
                    shutil.rmtree(path, ignore_errors=True)
            counts[fault.name] = counts.get(fault.name, 0) + 1
        else:
            raise AssertionError(f"{scenario.name} needs more than {_MOST_CALLS} calls")
    total = sum(counts.values())
    return Walked(points=total, recovered=total, by_fault=counts)


def _undisturbed(scenario: Scenario, root: Path, start: Path) -> tuple[State, State, frozenset[str]]:
    """The old state, the new one, and the files then; the old one stays in `start`."""
    root.mkdir()
    scenario.prepare(root)
    shutil.copytree(root, start)
    old = scenario.read(root)
    scenario.act(root)
    new = scenario.read(root)
    assert old != new, f"{scenario.name} changes nothing that its reader sees"
    files = _files(root)
    shutil.rmtree(root)
    return old, new, files


def _act(scenario: Scenario, disk: FaultyDisk, where: str) -> None:
    ended = False
    try:
        with disk.in_place():
            scenario.act(disk.root)
    except ProcessEnded:
        ended = True
    except Exception as error:
        _require_documented(error, scenario, where)
    if disk.happened and not disk.fault.number:
        assert ended, f"{where}: the end of the process was caught"
        disk.after_crash()


def _require_documented(error: Exception, scenario: Scenario, where: str) -> None:
    is_ours = isinstance(error, (EdgetrainError, *scenario.may_say))
    assert is_ours, f"{where}: {type(error).__name__} instead of an error of ours: {error}"
    assert as_edgetrain_error(error).exit_code == DeviceError.exit_code, f"{where}: {error!r}"


def _check(
    scenario: Scenario, root: Path, whole: Sequence[State], new: State, files: frozenset[str], where: str
) -> None:
    found = scenario.read(root)
    assert found in whole, f"{where}: readers see {found!r}, which is none of {tuple(whole)!r}"
    _age(root)
    scenario.sweep(root)
    try:
        scenario.act(root)
    except Exception as error:
        raise AssertionError(f"{where}: once more fails with {type(error).__name__}: {error}") from error
    assert scenario.read(root) == new, f"{where}: once more does not give the new state"
    left = {name for name in _files(root) - files if not scenario.stays(name)}
    assert not left, f"{where}: {sorted(left)} stay behind"


def _age(root: Path) -> None:
    """What is young may be another command's, and is not swept."""
    past = time.time() - _LONG_AGO_S
    for path in root.rglob("*"):
        with contextlib.suppress(OSError):
            os.utime(path, (past, past), follow_symlinks=False)


def _files(root: Path) -> frozenset[str]:
    return frozenset(path.relative_to(root).as_posix() for path in root.rglob("*"))
