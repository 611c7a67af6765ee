"""One process that trains for long: what it holds and how fast it is at its end, beside its beginning."""

from __future__ import annotations

import json
import signal
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.soaking.process import Command, edgetrain, now_s, sample

_WORDS = (
    "fit", "digits", "train.batch=4", "data.limit=256", "train.epochs=100000000", "train.checkpoint_every=5000",
    "train.optimizer=sgd", "train.learning_rate=0.001", "train.schedule=constant", "--threads", "1",
    "--trial-time", "0s", "--budget", "1MB",
)  # fmt: skip
_MOVES = ("600kB", "1MB")
_SAMPLES, _WARM_UP = 200, 0.1  # the first tenth loads what is loaded once
_TENTHS = 10
_MOST_MEMORY_RATIO, _MOST_MEMORY_BYTES = 1.05, 2 << 20
_DESCRIPTORS_SLACK = 2  # a plan that pages has a file, and so has a checkpoint while it is written
_MOST_TIME_RATIO = 1.25
_STEP_LINE_BYTES, _EVENT_LINE_BYTES = 200, 400
_CHECKPOINT_SLACK_BYTES = 512
_LOG_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The process after `step` steps."""

    at_s: float
    step: int
    descriptors: int
    resident_bytes: int
    cpu_s: float
    checkpoint_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """Ratios are of medians: of the last tenth of the time to the first one after the warm-up."""

    steps: int
    seconds: float
    descriptors: tuple[int, int]
    resident_bytes: tuple[int, int]
    steps_per_s: tuple[float, float]
    steps_per_cpu_s: tuple[float, float]
    checkpoint_bytes: tuple[int, int]
    log_bytes_per_step: float
    switches: int
    wrong: tuple[str, ...]

    def row(self) -> dict[str, object]:
        return asdict(self)


def train_for(
    seconds: float, *, moving: bool, folder: Path, environment: Mapping[str, str], say: Callable[[str], None]
) -> LongRun:
    """Trains for so long in one process. `moving`: its budget changes all the time."""
    folder.mkdir(parents=True)
    out = folder / "run"
    told = folder / "fit.err"
    run = Command((*_WORDS, "--out", str(out)), cwd=folder, environment=environment, told=told)
    wrong: list[str] = []
    moments: list[Moment] = []
    try:
        switches = _watch(run, out, seconds, moments, wrong, _Mover(out, folder, environment) if moving else None, say)
    finally:
        run.signal(signal.SIGTERM)
        code = run.wait(60)
    if code != 130:
        wrong.append(f"it ended with {code} after SIGTERM: {run.text()[-800:]}")
    wrong += [f"it said `{words}`: {run.text()[-1500:]}" for words in run.bugs()]
    return judged(moments, out, switches, wrong)


class _Mover:
    """Asks for another budget, and another."""

    def __init__(self, out: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self._out, self._folder, self._environment = out, folder, environment
        self.count = 0

    def move(self, wrong: list[str]) -> None:
        words = ("budget", str(self._out), _MOVES[self.count % len(_MOVES)])
        told = self._folder / "budget.err"
        asked = edgetrain(words, cwd=self._folder, environment=self._environment, told=told)
        self.count += 1
        if asked.code() != 0:
            wrong.append(f"`budget` ended with {asked.code()}: {asked.text()[-800:]}")


def _watch(
    run: Command,
    out: Path,
    seconds: float,
    moments: list[Moment],
    wrong: list[str],
    mover: _Mover | None,
    say: Callable[[str], None],
) -> int:
    began = now_s()
    while not (out / "live.json").exists() and run.code() is None and now_s() - began < 300:
        time.sleep(0.1)
    began, told = now_s(), 0.0
    while (passed := now_s() - began) < seconds:
        if run.code() is not None:
            wrong.append(f"it ended by itself with {run.code()}: {run.text()[-800:]}")
            break
        if (found := _moment(run, out, passed)) is not None:
            moments.append(found)
            if passed - told > 60:
                told = passed
                say(f"step {found.step:,}, {found.resident_bytes / 1e6:.1f} MB, {found.descriptors} descriptors")
        if mover is not None and not wrong:
            mover.move(wrong)
        time.sleep(max(0.05, seconds / _SAMPLES))
    return mover.count if mover is not None else 0


def _moment(run: Command, out: Path, passed: float) -> Moment | None:
    found = sample(run.pid)
    step = last_step(out / "log.jsonl")
    checkpoint = out / "checkpoint.bin"
    if found is None or step is None or not checkpoint.exists():
        return None
    try:
        size = checkpoint.stat().st_size
    except FileNotFoundError:  # between its two renames
        return None
    return Moment(
        at_s=passed,
        step=step,
        descriptors=found.descriptors,
        resident_bytes=found.resident_bytes,
        cpu_s=found.cpu_s,
        checkpoint_bytes=size,
    )


def last_step(log: Path) -> int | None:
    """The step of the last whole line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().splitlines(keepends=True)
    except OSError:
        return None
    for line in reversed(lines):
        if line.endswith(b"\n") and line.startswith(b"{"):
            return int(json.loads(line)["step"])
    return None


def judged(moments: list[Moment], out: Path, switches: int, wrong: list[str]) -> LongRun:
    """`wrong` and what else the moments show. Raises `SystemExit` where they are too few to show anything."""
    after = [m for m in moments if m.at_s >= _WARM_UP * moments[-1].at_s]
    size = max(2, len(after) // _TENTHS)
    if len(after) < 2 * size:
        raise SystemExit(f"the long run was too short to say anything: {len(moments)} samples; {wrong}")
    first, last = after[:size], after[-size:]
    resident = _median([m.resident_bytes for m in first]), _median([m.resident_bytes for m in last])
    descriptors = _median([m.descriptors for m in first]), _median([m.descriptors for m in last])
    cpu_rates = _rate(first, "cpu_s"), _rate(last, "cpu_s")
    sizes = min(m.checkpoint_bytes for m in moments), max(m.checkpoint_bytes for m in moments)
    if resident[1] > _MOST_MEMORY_RATIO * resident[0] + _MOST_MEMORY_BYTES:
        wrong.append(f"resident memory went from {resident[0]} to {resident[1]} bytes")
    if descriptors[1] > descriptors[0] + _DESCRIPTORS_SLACK:
        wrong.append(f"descriptors went from {descriptors[0]} to {descriptors[1]}")
    if not switches and cpu_rates[1] * _MOST_TIME_RATIO < cpu_rates[0]:
        wrong.append(f"steps a second of the processor went from {cpu_rates[0]:.0f} to {cpu_rates[1]:.0f}")
    if sizes[1] - sizes[0] > _CHECKPOINT_SLACK_BYTES:
        wrong.append(f"the checkpoint went from {sizes[0]} to {sizes[1]} bytes")
    steps, events, log_bytes = _log_size(out / "log.jsonl")
    if log_bytes > steps * _STEP_LINE_BYTES + events * _EVENT_LINE_BYTES:
        wrong.append(f"log.jsonl has {log_bytes} bytes for {steps} steps and {events} events")
    return LongRun(
        steps=steps,
        seconds=moments[-1].at_s,
        descriptors=descriptors,
        resident_bytes=resident,
        steps_per_s=(_rate(first, "at_s"), _rate(last, "at_s")),
        steps_per_cpu_s=cpu_rates,
        checkpoint_bytes=sizes,
        log_bytes_per_step=log_bytes / max(1, steps),
        switches=switches,
        wrong=tuple(wrong),
    )


def _rate(moments: list[Moment], clock: str) -> float:
    begins, ends = moments[0], moments[-1]
    passed_s: float = getattr(ends, clock) - getattr(begins, clock)
    return (ends.step - begins.step) / max(1e-9, passed_s)


def _median(values: list[int]) -> int:
    return int(statistics.median(values))


def _log_size(log: Path) -> tuple[int, int, int]:
    """Steps, other lines and bytes."""
    steps = events = 0
    with log.open("rb") as file:
        for line in file:
            events += b'"event"' in line
            steps += b'"event"' not in line
    return steps, events, log.stat().st_size
