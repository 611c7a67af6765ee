"""Trials of schedules that were not measured on this machine: their settings and their results. No TVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgetrain.targets.device import Rates
from edgetrain_tuner.measure.outcome import MEASURED, WRONG, Outcome
from edgetrain_tuner.measure.worker import Limits
from edgetrain_tuner.search import MARGIN

TRIALS = "trials.json"
TRYING = "trying schedules"  # the stage whose progress is counted in kernels
MEASURING = (sys.executable, "-P", "-m", "edgetrain.compiler.measure.process")

HOLDS, SLOWER, FAILS = "holds", "slower", "fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where and when something was measured, for which model, by what."""

    machine: str
    today: str
    model: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How long may be tried, and by which process. When the time is up no other kernel is begun."""

    seconds: float | None = None  # 0: nothing is tried; None: by the run's length (`trial_time.py`)
    measuring: tuple[str, ...] = MEASURING
    limits: Limits = field(default_factory=Limits)  # of one candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTerms:
    """For a target that is this machine: only what was measured on it is used, and the rest is tried.

    `batches` is how often the run ahead calls the step; None where there is no run, and nothing to weigh trials with.
    """

    origin: Origin
    threads: int
    trials: Trials
    rates: Rates  # modelled: to say which kernel is heavier, and how long the run will take
    batches: int | None = None

    @property
    def are_allowed(self) -> bool:
        return self.trials.seconds is None or self.trials.seconds > 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TrialTerms:
        trials = data["trials"]
        return TrialTerms(
            origin=Origin(**data["origin"]),
            threads=data["threads"],
            trials=Trials(
                seconds=trials["seconds"], measuring=tuple(trials["measuring"]), limits=Limits(**trials["limits"])
            ),
            rates=Rates(**data["rates"]),
            batches=data["batches"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSchedule:
    """One entry's schedule on one kernel of the model. `claimed` is what the entry says of it."""

    kernel: str  # for people
    entry: str
    level: str
    claimed: float
    outcome: Outcome

    @property
    def verdict(self) -> str:
        """`holds`, `slower`, `wrong` or `fails`."""
        if self.outcome.status == MEASURED:
            return HOLDS if self.outcome.speedup >= MARGIN else SLOWER
        return WRONG if self.outcome.status == WRONG else FAILS

    @property
    def is_broken(self) -> bool:
        return self.verdict in (WRONG, FAILS)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TriedSchedule:
        return TriedSchedule(**{**data, "outcome": Outcome.from_json(data["outcome"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """What was tried, how many kernels were left when the time was up, and which could not be measured at all."""

    tried: tuple[TriedSchedule, ...] = ()
    left: int = 0
    unmeasured: Mapping[str, str] = field(default_factory=dict)  # why, by kernel

    def to_json(self) -> dict[str, Any]:
        return {
            "tried": [one.to_json() for one in self.tried],
            "left": self.left,
            "unmeasured": dict(self.unmeasured),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TrialReport:
        tried = tuple(TriedSchedule.from_json(one) for one in data["tried"])
        return TrialReport(tried=tried, left=data["left"], unmeasured=data["unmeasured"])


NOTHING_TRIED = TrialReport()


def write_trials(path: Path, report: TrialReport) -> None:
    path.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")


def read_trials(path: Path) -> TrialReport:
    """What `write_trials` wrote; nothing where it wrote nothing."""
    if not path.exists():
        return NOTHING_TRIED
    return TrialReport.from_json(json.loads(path.read_text(encoding="utf-8")))
