"""One process of a run, and what happens to it on the way: signals, other budgets, full disks, a clock that jumps."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from benchmarks.soaking.clock import JumpingClock
from benchmarks.soaking.disk import Disk
from benchmarks.soaking.process import Command, now_s, sample

_PATIENCE_S = 240.0  # what no session takes, however busy the machine is
_GRACE_S = 40.0  # after the time of the soak; a run that needs longer is given up
_LOOK_S, _SAMPLE_S = 0.01, 0.2
_SOFT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_YEAR_S = 365 * 86_400
_BESIDE = ("budget", "budget", "disk", "disk", "clock", "junk")  # a full disk may end the session
_ENDS = ("kill", "kill", "stop", "twice")
_JUNK = "[" * 20_000
_ENDED_SHARE = 0.6  # of the sessions that are not dense


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """`within`: it counts from the first step of the session; else from the start of the process."""

    kind: str
    after_s: float
    within: bool


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a session did, and what it was like."""

    code: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    most_descriptors: int = 0
    most_resident_bytes: int = 0
    samples: int = 0
    given_up: bool = False  # its time was over, which says nothing about the run
    wrong: list[str] = field(default_factory=list)


def random_disturbances(rng: random.Random, *, dense: bool) -> tuple[Disturbance, ...]:
    """In the order of their times, those before the first step first. Densely: one signal soon after the first step."""
    if dense:
        return (Disturbance(kind=rng.choice(("kill", "kill", "stop")), after_s=rng.expovariate(8.0), within=True),)
    kinds = [rng.choice(_BESIDE) for _ in range(rng.randint(1, 3))]
    if rng.random() < _ENDED_SHARE:
        kinds.append(rng.choice(_ENDS))
    found = []
    for kind in kinds:
        within = rng.random() < 0.8 or kind == "junk"  # `fit` refuses a pipe that is there when it starts
        found.append(Disturbance(kind=kind, after_s=rng.uniform(0.0, 3.0 if kind in _ENDS else 1.0), within=within))
    return tuple(sorted(found, key=lambda d: (d.within, d.after_s)))


@dataclass(kw_only=True)
class Session:
    """A `fit` in `folder` that is disturbed. `run` once."""

    words: Sequence[str]
    folder: Path  # the run's
    cwd: Path
    environment: Mapping[str, str]
    told: Path
    disk: Disk
    clock: JumpingClock
    rng: random.Random
    ends_s: float = inf
    budgets: Sequence[str] = ()
    disturbances: Sequence[Disturbance] = ()

    def __post_init__(self) -> None:
        self._seen = Seen()
        self._sent: list[int] = []
        self._is_disk_short = False
        self._beside: list[Command] = []

    def run(self) -> Seen:
        self._remove_junk()
        short = not self.disk.is_mounted and any(d.kind == "disk" for d in self.disturbances)
        limit = self.rng.randrange(1 << 10, 200 << 10) if short else None
        self._is_disk_short = short
        self._seen.counts["disk"] += short
        fit = Command(self.words, cwd=self.cwd, environment=self.environment, told=self.told, file_limit_bytes=limit)
        self._watch(fit)
        self.disk.free()
        for command in self._beside:
            self._judge_budget(command)
        self._judge(fit)
        self._remove_junk()
        return self._seen

    def _watch(self, fit: Command) -> None:
        begun = now_s()
        first_step: float | None = None
        log_before = self._log_mark()
        waiting = list(self.disturbances)
        sampled = 0.0
        for now in _moments():
            if fit.code() is not None:
                break
            if now - begun > _PATIENCE_S:
                self._seen.wrong.append(f"it did not end in {_PATIENCE_S:g} s")
                fit.wait(0)
                break
            if now > self.ends_s + _GRACE_S:
                self._seen.given_up = True
                fit.wait(0)
                break
            if first_step is None and self._log_mark() != log_before:
                first_step = now
            if now - sampled > _SAMPLE_S:
                sampled = now
                self._sample(fit.pid)
            while waiting and _is_due(waiting[0], now, begun, first_step) and self._can(waiting[0].kind, fit):
                self._disturb(waiting.pop(0).kind, fit)

    def _log_mark(self) -> tuple[int, int]:
        try:
            status = (self.folder / "log.jsonl").stat()
        except OSError:
            return (0, 0)
        return (status.st_ino, status.st_size)

    def _sample(self, pid: int) -> None:
        found = sample(pid)
        if found is not None:
            self._seen.samples += 1
            self._seen.most_descriptors = max(self._seen.most_descriptors, found.descriptors)
            self._seen.most_resident_bytes = max(self._seen.most_resident_bytes, found.resident_bytes)

    def _can(self, kind: str, fit: Command) -> bool:
        """Before it has said a word it is Python that a signal meets, not edgetrain. SIGKILL asks nobody."""
        return kind not in ("stop", "twice") or fit.has_begun()

    def _disturb(self, kind: str, fit: Command) -> None:
        match kind:
            case "kill":
                self._send(fit, signal.SIGKILL)
            case "stop":
                self._send(fit, self.rng.choice(_SOFT))
            case "twice":
                self._send(fit, self.rng.choice(_SOFT))
                self._send(fit, self.rng.choice(_SOFT))
            case "budget" if self.budgets:
                self._ask(self.rng.choice(self.budgets))
            case "disk" if self.disk.is_mounted:
                self.disk.fill(self.rng.choice((0, 0, self.rng.randrange(1, 400 << 10))))
                self._is_disk_short = True
            case "clock":
                self.clock.jump(self.rng.choice((-1, 1)) * self.rng.randrange(1, _YEAR_S))
            case "junk":
                self._leave_junk()
            case _:
                return
        self._seen.counts[kind] += 1

    def _send(self, fit: Command, number: signal.Signals) -> None:
        if fit.code() is None:
            self._sent.append(number)
            self._seen.counts[number.name] += 1
            fit.signal(number)

    def _ask(self, size: str) -> None:
        told = self.told.with_name(f"{self.told.stem}-budget-{len(self._beside)}.err")
        words = ("budget", str(self.folder), size, "--timeout", "20s")
        self._beside.append(Command(words, cwd=self.cwd, environment=self.environment, told=told))

    def _leave_junk(self) -> None:
        """A request that is none: nested too deeply, or a pipe that nobody writes to."""
        request = self.folder / "request.json"
        try:
            if self.rng.random() < 0.5:
                request.write_text(_JUNK)
            else:
                os.mkfifo(request)
        except OSError:
            return

    def _remove_junk(self) -> None:
        """What came after a run's last look is left there; the next run rightly refuses a pipe (docs/security.md)."""
        request = self.folder / "request.json"
        if request.is_fifo() or (request.is_file() and request.read_text(encoding="utf-8") == _JUNK):
            request.unlink()

    def _judge(self, fit: Command) -> None:
        code = self._seen.code = fit.code()
        if self._seen.given_up:
            return
        allowed = {0}
        if self._is_disk_short:
            allowed.add(6)
        if any(number in _SOFT for number in self._sent):
            allowed.add(130)
        if signal.SIGKILL in self._sent:
            allowed.add(-signal.SIGKILL)
        if code not in allowed:
            self._seen.wrong.append(f"exit code {code}, where {sorted(allowed)} are right: {fit.text()[-800:]}")
        self._seen.wrong += [f"it said `{words}`: {fit.text()[-1500:]}" for words in fit.bugs()]

    def _judge_budget(self, command: Command) -> None:
        """0: done; 2: the run had ended or not begun; 3: too small; 5: stopped in between; 6: no answer, or no disk."""
        code = command.wait(60)
        if code not in (0, 2, 3, 5, 6):
            self._seen.wrong.append(f"`{' '.join(command.words)}` ended with {code}: {command.text()[-800:]}")
        self._seen.counts["budget met"] += code == 0
        self._seen.wrong += [f"`budget` said `{words}`: {command.text()[-1500:]}" for words in command.bugs()]


def _is_due(disturbance: Disturbance, now: float, begun: float, first_step: float | None) -> bool:
    since = first_step if disturbance.within else begun
    return since is not None and now - since >= disturbance.after_s


def _moments() -> Iterator[float]:
    import time

    while True:
        yield now_s()
        time.sleep(_LOOK_S)
