"""A run folder as the report reads it. Files that an older version did not write are missing, not an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from edgetrain.errors import DataError, EdgetrainError, InternalError
from edgetrain.files.sealed import parse_sealed
from edgetrain.files.secret_key import SecretKey, read_key
from edgetrain.graph.ir import TrainGraph
from edgetrain.graph.ir import from_json as graph_from_json
from edgetrain.planner.dump import from_json as plan_from_json
from edgetrain.planner.plan import Plan
from edgetrain.program.artifact import GRAPH, PLAN
from edgetrain.run.files.folders import JobRecord
from edgetrain.run.files.plot import Point
from edgetrain.run.files.report import FORMAT, REPORT, loss_curve
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import read_recipe
from edgetrain.run.learned.learned import Learned, read_learned
from edgetrain.targets.device import Device
from edgetrain.targets.profile import load_target

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One validation: after which epoch and step, and what was measured."""

    epoch: int
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A finished run. `report` is `report.json`, whose keys are documented in docs/artifact.md."""

    folder: Path
    report: Mapping[str, Any]
    learned: Learned | None
    graph: TrainGraph | None
    plan: Plan | None  # that the run ended with
    device: Device | None  # that it was planned for; None where its profile is no longer there

    @property
    def used_bytes(self) -> int:
        """What is held against the budget: what the process grew by, or the arena where the system does not say."""
        process = self.report.get("process_peak_bytes")
        return int(process if process is not None else self.report["measured_peak_bytes"])

    @property
    def planned_bytes(self) -> int:
        """What was planned of `used_bytes`."""
        is_process = self.report.get("process_peak_bytes") is not None
        process = self.report.get("planned_process_bytes") if is_process else None
        return int(process if process is not None else self.report["planned_peak_bytes"])

    @property
    def name(self) -> str:
        return str(self.recipe.get("name") or self.folder.name)

    @property
    def recipe(self) -> Mapping[str, Any]:
        found = self.report.get("recipe")
        return found if isinstance(found, Mapping) else {}

    @cached_property
    def losses(self) -> tuple[float, ...]:
        return tuple(map(float, self.report["losses"]))

    @cached_property
    def loss_points(self) -> tuple[Point, ...]:
        """The losses with their steps: all, or what the report keeps of a long run."""
        return loss_curve([int(step) for step in self.report.get("loss_steps") or ()], self.losses)

    @cached_property
    def validations(self) -> tuple[Measured, ...]:
        return tuple(
            Measured(epoch=v["epoch"], step=v["step"], metrics=v["metrics"]) for v in self.report["validations"]
        )

    @property
    def best(self) -> Measured | None:
        """The validation whose parameters were kept."""
        return next((v for v in self.validations if v.step == self.report.get("best_step")), None)

    @property
    def scores(self) -> Mapping[str, float]:
        """What was measured at the end on the evaluation part, by metric."""
        part = f"{self.part}_"
        return {
            key.removeprefix(part): value
            for key, value in self.report.items()
            if key.startswith(part) and isinstance(value, int | float)
        }

    @property
    def metric(self) -> str:
        """The one that the recipe names, else the loss."""
        named = str(self.recipe.get("metric", ""))
        return named if named in self.scores else "loss"

    @property
    def part(self) -> str:
        """Of the data, on which the scores were measured."""
        return str(self.report.get("evaluated_part") or (self.learned.part if self.learned is not None else "test"))

    @property
    def periods(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.report.get("phases") or ()
        return found


def read_run(folder: Path) -> RunRecord:
    """Raises `DataError` where `folder` holds no finished run, or one of its files is broken."""
    path = folder / REPORT
    report = _report(folder, path)
    program = RunFolder(folder).program
    record = RunRecord(
        folder=folder,
        report=report,
        learned=read_learned(folder, key_of(folder)),
        graph=_of_program(program / GRAPH, graph_from_json),
        plan=_of_program(program / PLAN, plan_from_json),
        device=_device(folder, report),
    )
    try:
        _ = record.loss_points, record.validations
        int(report["planned_peak_bytes"]), int(report["measured_peak_bytes"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _broken(path, f"{type(error).__name__}: {error}") from error
    return record


def key_of(folder: Path) -> SecretKey | None:
    """What the run's files are encrypted with. Raises `UsageError` where its key is not there."""
    run = RunFolder(folder)
    return read_key(read_recipe(run).security.key) if run.recipe.is_file() else None


def _report(folder: Path, path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        is_run = RunFolder(folder).recipe.is_file()
        raise DataError(
            f"`{folder}` {'holds a run that is not finished' if is_run else 'is not a run folder'}",
            why=f"there is no `{REPORT}` in it",
            fix=(
                f"finish it with `edgetrain fit --resume --out {folder}`"
                if is_run
                else "give the folder that `edgetrain fit` named at its end, like `runs/digits`"
            ),
        )
    try:
        report = parse_sealed(path.read_bytes())
        found = report["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _broken(path, str(error)) from error
    if found != FORMAT:
        raise _broken(path, f"it has the format `{found}`, and this version of edgetrain reads `{FORMAT}`")
    return dict(report)


def _device(folder: Path, report: Mapping[str, Any]) -> Device | None:
    try:
        job = JobRecord.read(folder)
        return load_target(job.target if job is not None else str(report.get("target"))).device
    except EdgetrainError:  # a profile that was the user's own, and has gone since
        return None


def _of_program(path: Path, read: Callable[[str], T]) -> T | None:
    """What the file holds; None where there is none."""
    if not path.is_file():
        return None
    try:
        return read(path.read_text(encoding="utf-8"))
    except (InternalError, OSError, UnicodeDecodeError) as error:  # here it is the file that is wrong
        raise _broken(path, str(error)) from error


def _broken(path: Path, why: str) -> DataError:
    return DataError(f"`{path}` cannot be used", why=why, fix="train again, or restore it from a copy")
