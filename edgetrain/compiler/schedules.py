"""Which schedule each kernel is compiled with, and where it comes from. Plain data: no TVM.

A program's numbers depend on the order of its sums, and so on its schedules: what was chosen is recorded with whatever
was compiled, and a run that is resumed asks for the same again.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from edgetrain.compiler.search.trials import FAILS, NOTHING_TRIED, SLOWER, TrialReport
from edgetrain.errors import DataError
from edgetrain.files.private import make_private_folder
from edgetrain.files.sealed import parse_sealed
from edgetrain_tuner.cache.entry import Target, Workload
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.levels import Levels
from edgetrain_tuner.measure.outcome import WRONG
from edgetrain_tuner.schedule import Schedule
from edgetrain_tuner.transfer import Donor, Lenders, choose, prospects

log = logging.getLogger(__name__)

SCHEDULES = "schedules.json"
RULE, CACHE, TRANSFERRED = "rule", "cache", "transferred"
_FORMAT = "edgetrain.schedules/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChoice:
    """A kernel's schedule. None is what the rules propose for it."""

    schedule: Schedule | None = None
    source: str = RULE
    level: str = ""  # of the cache: user, team, seed
    entry: str = ""  # its id there

    def to_json(self) -> dict[str, Any]:
        return {
            "schedule": None if self.schedule is None else json.loads(self.schedule.canonical()),
            "source": self.source,
            "level": self.level,
            "entry": self.entry,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ScheduleChoice:
        stored = data["schedule"]
        schedule = None if stored is None else schedule_from_json(stored)
        return ScheduleChoice(schedule=schedule, source=data["source"], level=data["level"], entry=data["entry"])


Choices = Mapping[str, ScheduleChoice]  # by the kernel's symbol; a kernel that is missing has its rule's


def schedule_from_json(data: Mapping[str, Any]) -> Schedule:
    return Schedule(str(data["rule"]), {name: tuple(values) for name, values in data["parameters"].items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """A kernel as it was compiled: what it is, the choice that was asked for, and the schedule that came of it."""

    workload: Workload
    asked: ScheduleChoice
    choice: ScheduleChoice  # with the schedule that was applied, a rule's too

    def to_json(self) -> dict[str, Any]:
        parts = {"asked": self.asked.to_json(), "choice": self.choice.to_json()}
        return {"workload": workload_to_json(self.workload), **parts}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> KernelRecord:
        asked, choice = (ScheduleChoice.from_json(data[name]) for name in ("asked", "choice"))
        return KernelRecord(workload=workload_from_json(data["workload"]), asked=asked, choice=choice)

    def asked_as(self, asked: ScheduleChoice) -> KernelRecord:
        """The record for who asks for the same schedule, from wherever they have it."""
        is_applied = self.choice.source != RULE
        choice = replace(asked, schedule=self.choice.schedule) if is_applied else self.choice
        return replace(self, asked=asked, choice=choice)


def workload_to_json(workload: Workload) -> dict[str, Any]:
    return asdict(workload)


def workload_from_json(data: Mapping[str, Any]) -> Workload:
    return Workload(**{**data, "dims": tuple(data["dims"])})


def records_text(records: Mapping[str, KernelRecord]) -> str:
    kernels = {symbol: record.to_json() for symbol, record in records.items()}
    return json.dumps({"format": _FORMAT, "kernels": kernels}, indent=1) + "\n"


def write_records(path: Path, records: Mapping[str, KernelRecord]) -> None:
    path.write_text(records_text(records), encoding="utf-8")


def read_records(path: Path) -> dict[str, KernelRecord]:
    """Raises `DataError` for a file that is not one that `write_records` wrote."""
    try:
        data = parse_sealed(path.read_bytes())
        if data["format"] != _FORMAT:
            raise ValueError("it is of another format")
        return {symbol: KernelRecord.from_json(kernel) for symbol, kernel in data["kernels"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"`{path}` cannot be used", why=str(error), fix="remove it: schedules are then chosen again"
        ) from error


def choices_of(records: Mapping[str, KernelRecord]) -> dict[str, ScheduleChoice]:
    """What to ask for to get the same again."""
    return {symbol: record.asked for symbol, record in records.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStores:
    """Where schedules are kept on this machine, and where those that came with edgetrain are, if they are used."""

    folder: Path
    seed_folder: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "seed_folder": None if self.seed_folder is None else str(self.seed_folder)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ScheduleStores:
        seed = data["seed_folder"]
        return ScheduleStores(folder=Path(data["folder"]), seed_folder=None if seed is None else Path(seed))

    @property
    def user_path(self) -> Path:
        return self.folder / "user.sqlite"

    @property
    def teams_folder(self) -> Path:
        return self.folder / "teams"

    @contextmanager
    def opened(self) -> Iterator[Levels]:
        """Raises `CacheError`, `OSError` or `sqlite3.Error` where the user's store cannot be opened."""
        make_private_folder(self.folder)
        with Levels.open(
            user_path=self.user_path, teams_folder=self.teams_folder, seed_folder=self.seed_folder
        ) as levels:
            yield levels

    def choose(
        self, workloads: Mapping[str, Workload], target: Target, *, machine: str | None = None
    ) -> KnownSchedules:
        """What the stores have for these kernels. A store that cannot be read has nothing."""
        try:
            with self.opened() as levels:
                return choose_schedules(workloads, target, levels, machine=machine)
        except (CacheError, OSError, sqlite3.Error) as error:
            log.warning("the schedule cache %s is left out: %s", self.folder, error)
            return KnownSchedules()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSchedules:
    """By the kernel's symbol: what to use at once, and what is worth a trial first."""

    choices: Mapping[str, ScheduleChoice] = field(default_factory=dict)
    untried: Mapping[str, tuple[Donor, ...]] = field(default_factory=dict)


def choose_schedules(
    workloads: Mapping[str, Workload], target: Target, lenders: Lenders, *, machine: str | None = None
) -> KnownSchedules:
    """A schedule for each kernel that one is known for.

    `machine` is the one that programs run on: only what was measured there is known, and what others say is to be
    tried. Without one nothing can be tried, and the entries' word is taken.
    """
    chosen, untried = {}, {}
    for symbol, workload in workloads.items():
        if machine is None:
            donor = choose(workload, target, lenders)
        else:
            found = prospects(workload, target, lenders, machine=machine)
            donor = found.proven
            if found.untried:
                untried[symbol] = found.untried
        if donor is not None:
            chosen[symbol] = choice_of(donor, donor.schedule)
    return KnownSchedules(choices=chosen, untried=untried)


def choice_of(lender: Donor, schedule: Schedule) -> ScheduleChoice:
    """The schedule, with where it comes from."""
    source = CACHE if lender.is_known or lender.is_shipped else TRANSFERRED
    return ScheduleChoice(schedule=schedule, source=source, level=lender.level, entry=lender.id)


def summary(choices: Sequence[ScheduleChoice], trials: TrialReport = NOTHING_TRIED) -> dict[str, Any]:
    """How many kernels have their schedule from where, and what was tried for it: for reports."""
    sources = Counter(choice.source for choice in choices)
    levels = Counter(choice.level for choice in choices if choice.source == CACHE)
    verdicts = Counter(one.verdict for one in trials.tried)
    return {
        "kernels": len(choices),
        "from_rules": sources[RULE],
        "from_cache": dict(sorted(levels.items())),
        "transferred": sources[TRANSFERRED],
        "tried": len(trials.tried),
        "no_faster": verdicts[SLOWER],
        "failed": verdicts[WRONG] + verdicts[FAILS],
        "left_untried": trials.left,
    }


def summary_text(choices: Sequence[ScheduleChoice], trials: TrialReport = NOTHING_TRIED) -> str:
    """`schedules: 31 from rules, 8 from the cache (team), 4 transferred; 12 tried, 3 of them no faster here`."""
    counts = summary(choices, trials)
    parts = [f"{counts['from_rules']} from rules"] if counts["from_rules"] else []
    parts += [f"{count} from the cache ({level})" for level, count in counts["from_cache"].items()]
    parts += [f"{counts['transferred']} transferred"] if counts["transferred"] else []
    tried = [f"{counts['tried']} tried"] if counts["tried"] else []
    tried += [f"{counts['no_faster']} of them no faster here"] if counts["no_faster"] else []
    tried += [f"{counts['failed']} failed"] if counts["failed"] else []
    left = [f"{counts['left_untried']} left for the next fit"] if counts["left_untried"] else []
    sentences = (", ".join(words) for words in (parts or ["no kernels"], tried, left) if words)
    return f"schedules: {'; '.join(sentences)}"
