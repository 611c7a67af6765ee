"""A run from its first process to its end, through everything that happens on the way, and what has to hold then."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.soaking.clock import JumpingClock
from benchmarks.soaking.disk import Disk
from benchmarks.soaking.process import edgetrain, now_s
from benchmarks.soaking.session import Seen, Session, random_disturbances
from benchmarks.soaking.variants import Variant

_CHECKPOINTS = ("checkpoint.bin", "checkpoint.previous.bin")
_MOST_SESSIONS, _MOST_DENSE = 4, 10
_CHECKPOINT_SLACK_BYTES = 512  # the sum of an epoch's losses has a few parts more or less
_DESCRIPTORS_SLACK = 8  # of a run that switches its program and reads requests
_RESIDENT_SLACK_BYTES = 24 << 20
_AGED_S = 3600.0
# All that a finished run holds, as README and docs/artifact.md list it.
DOCUMENTED = frozenset(
    {
        "adapters.json", "best.bin", "checkpoint.bin", "checkpoint.previous.bin", "data.json", "epochs.csv", "job.json",
        "learned.json", "log.jsonl", "model.onnx", "plot.svg", "program", "reading.json", "recipe.json", "report.html",
        "report.json", "run.lock", "schedules.json", "sessions.json",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """What the same run is like when nobody disturbs it."""

    parameters_sha256: str
    results: Mapping[str, Any]
    log: tuple[tuple[Any, ...], ...]
    checkpoint_bytes: int
    most_descriptors: int
    most_resident_bytes: int


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a chain went through, and what did not hold."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    given_up: bool = False
    most_descriptors: int = 0
    most_resident_bytes: int = 0

    def add(self, seen: Seen, number: int) -> None:
        self.counts += seen.counts
        self.given_up |= seen.given_up
        self.counts["sessions"] += 1
        self.counts["samples"] += seen.samples
        self.most_descriptors = max(self.most_descriptors, seen.most_descriptors)
        self.most_resident_bytes = max(self.most_resident_bytes, seen.most_resident_bytes)
        self.wrong += [f"session {number}: {wrong}" for wrong in seen.wrong]


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Where a run is trained: `folder` keeps what the processes said, `disk` holds the run."""

    variant: Variant
    seed: int  # of the run
    folder: Path
    disk: Disk
    clock: JumpingClock
    environment: Mapping[str, str]
    rng: random.Random
    ends_s: float  # from then on nothing is disturbed any more

    @property
    def out(self) -> Path:
        return self.disk.folder / "run"

    def undisturbed(self) -> tuple[Undisturbed, list[str]]:
        seen = self._session(0, disturb=False)
        if seen.code != 0 or seen.wrong:
            raise SystemExit(f"an undisturbed run ends with {seen.code}: {seen.wrong}; see {self.folder}")
        report = json.loads((self.out / "report.json").read_text())
        found = Undisturbed(
            parameters_sha256=report["parameters_sha256"],
            results=results_of(report),
            log=log_of(self.out),
            checkpoint_bytes=(self.out / _CHECKPOINTS[0]).stat().st_size,
            most_descriptors=seen.most_descriptors,
            most_resident_bytes=seen.most_resident_bytes,
        )
        return found, leftovers(self.out)

    def run(self, expected: Undisturbed) -> Outcome:
        """Disturbs the run a few times, lets it end, and looks at what it left."""
        outcome = Outcome()
        dense = self.rng.random() < 0.4
        for number in range(self.rng.randint(1, _MOST_DENSE if dense else _MOST_SESSIONS) + 1):
            seen = self._session(number, disturb=True, dense=dense)
            outcome.add(seen, number)
            if seen.code == 0 or outcome.wrong or seen.given_up:
                break
            if now_s() > self.ends_s:
                seen = self._session(number + 1, disturb=False)
                outcome.add(seen, number + 1)
                break
        else:
            seen = self._session(number + 1, disturb=False)
            outcome.add(seen, number + 1)
        if outcome.given_up:
            return outcome
        if not outcome.wrong and seen.code != 0:
            outcome.wrong.append(f"the last session, which nobody disturbed, ended with {seen.code}")
        if not outcome.wrong:
            outcome.wrong += [*differences(self.out, expected, outcome), *self._what_stays()]
        return outcome

    def _session(self, number: int, *, disturb: bool, dense: bool = False) -> Seen:
        resumes = any((self.out / name).exists() for name in _CHECKPOINTS)
        words = ("fit", "--resume", "--threads", "1", "--trial-time", "0s") if resumes else self.variant.fit(self.seed)
        return Session(
            words=(*words, "--out", str(self.out)),
            folder=self.out,
            cwd=self.folder,
            environment=self.environment,
            told=self.folder / f"{number:02d}.err",
            disk=self.disk,
            clock=self.clock,
            rng=self.rng,
            ends_s=self.ends_s,
            budgets=self.variant.budgets,
            disturbances=random_disturbances(self.rng, dense=dense) if disturb else (),
        ).run()

    def _what_stays(self) -> list[str]:
        """A finished run answers again and changes nothing; temp files of killed processes, once old, are gone then."""
        age(self.out)
        self.clock.jump(0)
        before = hashes(self.out)
        words = ("fit", "--resume", "--out", str(self.out))
        again = edgetrain(words, cwd=self.folder, environment=self.environment, told=self.folder / "again.err")
        wrong = [] if again.code() == 0 else [f"--resume of the finished run ends with {again.code()}: {again.text()}"]
        after = hashes(self.out)
        wrong += [f"--resume of the finished run changed {name}" for name in before if before[name] != after.get(name)]
        return wrong + [f"`{name}` is left in the run folder" for name in leftovers(self.out)]

    def keep(self, to: Path) -> None:
        """The run and what its processes said, for whoever looks into a failure."""
        shutil.copytree(self.out, to / "run", symlinks=True, ignore=_without_pipes, dirs_exist_ok=True)
        shutil.copytree(self.folder, to / "said", dirs_exist_ok=True, ignore=_without_pipes)


def differences(out: Path, expected: Undisturbed, outcome: Outcome) -> list[str]:
    """In what a finished run is not as if nobody had disturbed it."""
    wrong = []
    report = json.loads((out / "report.json").read_text())
    if report["parameters_sha256"] != expected.parameters_sha256:
        wrong.append(f"other bits: {report['parameters_sha256']}, undisturbed {expected.parameters_sha256}")
    found = results_of(report)
    wrong += [
        f"report.json: `{name}` is {found[name]}, undisturbed {value}"
        for name, value in expected.results.items()
        if found[name] != value
    ]
    if log_of(out) != expected.log:
        wrong.append("log.jsonl lists other steps or validations than that of the undisturbed run")
    sizes = {name: (out / name).stat().st_size for name in _CHECKPOINTS if (out / name).exists()}
    wrong += [
        f"{name} has {size} bytes, undisturbed {expected.checkpoint_bytes}"
        for name, size in sizes.items()
        if abs(size - expected.checkpoint_bytes) > _CHECKPOINT_SLACK_BYTES
    ]
    if outcome.most_descriptors > expected.most_descriptors + _DESCRIPTORS_SLACK:
        wrong.append(f"{outcome.most_descriptors} descriptors, undisturbed {expected.most_descriptors}")
    if outcome.most_resident_bytes > expected.most_resident_bytes + _RESIDENT_SLACK_BYTES:
        wrong.append(f"{outcome.most_resident_bytes} bytes resident, undisturbed {expected.most_resident_bytes}")
    return wrong


def results_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """What of a report does not depend on time, memory or the way there."""
    names = ("steps", "epochs", "ending", "kept_epoch", "losses", "loss_steps", "validations", "model_sha256")
    return {name: report[name] for name in report if name in names or re.match("(test|validation)_", name)}


def log_of(out: Path) -> tuple[tuple[Any, ...], ...]:
    """Each step and validation once, in order; other events say how it went, not what came of it."""
    lines = []
    for text in (out / "log.jsonl").read_text().splitlines():
        record = json.loads(text)
        if record.get("event") in (None, "validation"):
            lines.append(tuple((name, value) for name, value in record.items() if name != "seconds"))
    return tuple(lines)


def leftovers(out: Path) -> list[str]:
    return sorted({path.name for path in out.iterdir()} - DOCUMENTED)


def age(folder: Path) -> None:
    """What lies there begins with a dot and is not in use: as if it had been there for an hour."""
    for path in folder.rglob(".*"):
        status = path.lstat()
        os.utime(path, (status.st_atime - _AGED_S, status.st_mtime - _AGED_S), follow_symlinks=False)


def hashes(out: Path) -> dict[str, int]:
    """Of every file that stays."""
    return {str(p): hash(p.read_bytes()) for p in sorted(out.rglob("*")) if p.is_file() and not p.name.startswith(".")}


def _without_pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (Path(folder) / name).is_file() and not (Path(folder) / name).is_dir()]
