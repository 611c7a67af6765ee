"""Asks for better schedules: a search in the compiler's process, which measures in yet another one. No TVM here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgetrain.compiler.client import run_compiler
from edgetrain.compiler.measure.runners import Runner
from edgetrain.compiler.request import CompileRequest
from edgetrain.compiler.schedules import ScheduleStores, schedule_from_json, workload_from_json
from edgetrain.errors import DeviceError, error_from_json
from edgetrain.files.scratch import scratch_folder
from edgetrain.progress import ReportProgress
from edgetrain_tuner.cache.entry import Workload
from edgetrain_tuner.measure.outcome import Outcome
from edgetrain_tuner.schedule import Schedule
from edgetrain_tuner.search import LEARNED, RANDOM

TUNED = "tuned.json"
SEARCHED = "tuned"  # the source of what the search itself found
DEEP = "deep"  # of what MetaSchedule found
TUNING = "tuning kernels"  # the stage whose progress is counted in trials, or in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """Which kernels to tune and how much to spend. `weights` are seconds of a step, by symbol.

    `deep` is the cost model of a deep search, which asks MetaSchedule too; empty for none.
    """

    compile: CompileRequest
    threads: int
    weights: Mapping[str, float]
    stores: ScheduleStores
    trials: int | None = None
    seconds: float | None = None
    deep: str = ""
    runner: Runner | None = None  # None: this machine measures

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("threads", "trials", "seconds", "deep")}
        return {
            **plain,
            "compile": self.compile.to_json(),
            "weights": dict(self.weights),
            "runner": None if self.runner is None else self.runner.to_json(),
            "stores": self.stores.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TuneRequest:
        parts = {
            "compile": CompileRequest.from_json(data["compile"]),
            "runner": None if data["runner"] is None else Runner.from_json(data["runner"]),
            "stores": ScheduleStores.from_json(data["stores"]),
        }
        return cls(**{**data, **parts})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTrial:
    schedule: Schedule
    outcome: Outcome
    source: str  # searched here or found by MetaSchedule, from the cache, or transferred from another kernel

    def to_json(self) -> dict[str, Any]:
        schedule = json.loads(self.schedule.canonical())
        return {"schedule": schedule, "outcome": self.outcome.to_json(), "source": self.source}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> KernelTrial:
        return KernelTrial(
            schedule=schedule_from_json(data["schedule"]),
            outcome=Outcome.from_json(data["outcome"]),
            source=data["source"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedKernel:
    """What the search found for one kernel. `best` is None where the rule's own schedule stays."""

    symbol: str
    workload: Workload
    best: KernelTrial | None
    trials: tuple[KernelTrial, ...]
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "symbol": self.symbol,
            "workload": asdict(self.workload),
            "best": None if self.best is None else self.best.to_json(),
            "trials": [trial.to_json() for trial in self.trials],
            "failure": self.failure,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TunedKernel:
        return TunedKernel(
            symbol=data["symbol"],
            workload=workload_from_json(data["workload"]),
            best=None if data["best"] is None else KernelTrial.from_json(data["best"]),
            trials=tuple(KernelTrial.from_json(trial) for trial in data["trials"]),
            failure=data["failure"],
        )


def deep_cost_model() -> str:
    """What a deep search can rank its candidates by, as things are installed."""
    return LEARNED if importlib.util.find_spec("xgboost") else RANDOM


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search found; `lost` is why it ended early, where the device that measures was lost."""

    kernels: tuple[TunedKernel, ...]
    lost: DeviceError | None = None

    def to_json(self) -> dict[str, Any]:
        lost = None if self.lost is None else self.lost.to_json()
        return {"kernels": [kernel.to_json() for kernel in self.kernels], "lost": lost}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Searched:
        kernels = tuple(TunedKernel.from_json(kernel) for kernel in data["kernels"])
        lost = None if data["lost"] is None else error_from_json(data["lost"])
        return Searched(kernels=kernels, lost=lost if isinstance(lost, DeviceError) else None)


def search_schedules(request: TuneRequest, progress: ReportProgress | None = None) -> Searched:
    """Runs the search to its end. Raises as `compile_graph` does."""
    with scratch_folder("tune") as out:
        run_compiler({"job": "tune", "request": request.to_json(), "out": str(out)}, progress)
        return Searched.from_json(json.loads((Path(out) / TUNED).read_text(encoding="utf-8")))
