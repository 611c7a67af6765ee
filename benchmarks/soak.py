"""Trains for hours while everything goes wrong around it, and compares what comes out with runs that nobody disturbed.

    nice python -m benchmarks.soak --hours 1 [--seed N] [--jobs N] [--json OUT]

Runs of `edgetrain fit` in processes of their own are killed, stopped, given other budgets and junk for requests, their
disk runs full and their clock jumps by up to a year; each goes on until it has finished. Then parameters, results, log
and checkpoint must be those of the undisturbed run, nothing may be left behind, no exit code may be undocumented and
no traceback shown. Two processes train for long, one of them with a budget that moves all the time: neither memory nor
descriptors may grow, nor a step take longer.

Exit code 1 if anything did not hold. Then what was found is kept in `--keep`, and `--only N` repeats that run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from threading import Lock

from benchmarks.measure import add_json_option, publish
from benchmarks.soaking.chain import Chain, Outcome, Undisturbed, age
from benchmarks.soaking.clock import JumpingClock, build_clock
from benchmarks.soaking.disk import LIMIT, TMPFS, can_mount, small_disk
from benchmarks.soaking.long_run import LongRun, train_for
from benchmarks.soaking.process import edgetrain, now_s
from benchmarks.soaking.variants import VARIANTS

_STEADY_SHARE, _MOVING_SHARE = 0.30, 0.07  # of the time, for the two long runs
_LEAST_MOVING_S = 20.0  # a move takes some seconds: it plans and links
_COLD_SHARE = 0.1  # of the runs that begin with an empty cache, so that compiling is disturbed, too
_RUN_SEEDS = 2  # different runs of a variant
_COUNTED = ("sessions", "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "budget met", "disk", "clock", "junk")
_FOLDERS = ("tmp", "cache", "config", "runtime", "home")
FOUND = Path("build") / "soak-found"
COLUMNS = ("run", "runs", *_COUNTED, "wrong")
LONG_COLUMNS = (
    "run", "steps", "seconds", "descriptors", "resident_bytes", "steps_per_s", "steps_per_cpu_s", "checkpoint_bytes",
    "log_bytes_per_step", "switches", "wrong",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    seconds = 3600 * options.hours + 60 * options.minutes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # so that the temporary folder goes, too
    with tempfile.TemporaryDirectory(prefix="edgetrain-soak-") as folder:
        soak = Soak(
            folder=Path(folder), seed=options.seed, keep=options.keep, ends_s=now_s() + seconds, may_mount=can_mount()
        )
        soak.say(f"{seconds:g} s, seed {options.seed}; full disks: {soak.pressure}")
        try:
            soak.run(seconds, jobs=options.jobs, only=options.only)
        finally:
            # A folder that a test of ours made unwritable or a pipe in it must not stop the end.
            shutil.rmtree(Path(folder) / "chains", ignore_errors=True)
    publish("soak", soak.rows(), COLUMNS, options.json)
    for row in soak.long_rows():
        print("  ".join(f"{name} {row[name]}" for name in LONG_COLUMNS), file=sys.stderr)
    print("\n".join(soak.wrong) or "everything held", file=sys.stderr)
    sys.exit(1 if soak.wrong else 0)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once (1)")
    parser.add_argument("--only", type=int, help="no long runs, and of the others this one again and again")
    parser.add_argument("--keep", type=Path, default=FOUND, help="where to keep what did not hold")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    if options.hours + options.minutes <= 0:
        parser.error("say how long: --hours 1")
    return options


@dataclass(kw_only=True)
class Soak:
    """Everything that is run, in `folder`, until `ends_s`."""

    folder: Path
    seed: int
    keep: Path
    ends_s: float
    may_mount: bool
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began_s = now_s()
        self._lock = Lock()
        self._undisturbed: dict[tuple[str, int], Undisturbed] = {}
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in VARIANTS}
        self._long: dict[str, LongRun] = {}
        self._library = build_clock(self.folder)
        self._environment = self._places(self.folder / "places")

    @property
    def pressure(self) -> str:
        return TMPFS if self.may_mount else LIMIT

    def say(self, text: str) -> None:
        print(f"{now_s() - self._began_s:7.0f} s  {text}", file=sys.stderr, flush=True)

    def run(self, seconds: float, *, jobs: int, only: int | None) -> None:
        if only is None:
            self._train_long("one process, left alone", seconds * _STEADY_SHARE, moving=False)
            moving_s = max(_LEAST_MOVING_S, seconds * _MOVING_SHARE)
            self._train_long("one process, its budget moves", moving_s, moving=True)
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda job: self._chains(job, jobs, only), range(jobs)))
        self.check_places()

    def counts(self) -> Counter[str]:
        """Of all runs together."""
        return sum(self._counts.values(), Counter())

    def rows(self) -> list[dict[str, object]]:
        short = [{"run": name, **{c: counts[c] for c in COLUMNS[1:]}} for name, counts in self._counts.items()]
        total = self.counts()
        everything = {"run": "all", **{c: total[c] for c in COLUMNS[1:]}, "seconds": now_s() - self._began_s}
        everything |= {"seed": self.seed, "disk_pressure": self.pressure, "violations": list(self.wrong)}
        return [*short, everything, *self.long_rows()]

    def long_rows(self) -> list[dict[str, object]]:
        return [{"run": name, **run.row(), "wrong": len(run.wrong)} for name, run in self._long.items()]

    def _places(self, below: Path) -> Mapping[str, str]:
        """Folders of our own for everything that a command writes to beside its run."""
        for name in _FOLDERS:
            (below / name).mkdir(parents=True)
        taken = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "EDGETRAIN_"))}
        places = {"TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "runtime"}
        return {**taken, **{name: str(below / place) for name, place in places.items()}, "HOME": str(below / "home")}

    def _train_long(self, name: str, seconds: float, *, moving: bool) -> None:
        self.say(f"{name}: {seconds:.0f} s")
        folder = self.folder / name.replace(" ", "-").replace(",", "")
        found = train_for(seconds, moving=moving, folder=folder, environment=self._environment, say=self.say)
        self._long[name] = found
        self._note(name, found.wrong)
        shutil.rmtree(folder)

    def _chains(self, job: int, jobs: int, only: int | None) -> None:
        number = job if only is None else only
        while now_s() < self.ends_s:
            try:
                self.run_one(number)
            except Exception as error:  # a bug of this script is a finding, too, and the hour goes on
                self._note(f"run {number}", [f"{type(error).__name__}: {error}"])
                raise
            number += jobs if only is None else 0

    def run_one(self, number: int) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        name = list(VARIANTS)[number % len(VARIANTS)]
        run_seed = rng.randrange(_RUN_SEEDS)
        expected = self._expected(name, run_seed)
        is_cold = rng.random() < _COLD_SHARE
        folder = self.folder / "chains" / str(number)
        folder.mkdir(parents=True)
        environment = self._places(folder / "places") if is_cold else self._environment
        with small_disk(folder / "disk", may_mount=self.may_mount) as disk:
            clock = JumpingClock(folder, self._library)
            chain = Chain(
                variant=VARIANTS[name],
                seed=run_seed,
                folder=folder,
                disk=disk,
                clock=clock,
                environment={**environment, **clock.environment},
                rng=rng,
                ends_s=self.ends_s,
            )
            outcome = chain.run(expected)
            if outcome.wrong:
                chain.keep(self.keep / f"seed-{self.seed}-run-{number}")
        if is_cold:
            outcome.wrong += self._left(environment)
        self._count(name, number, outcome, is_cold=is_cold)
        shutil.rmtree(folder, ignore_errors=True)

    def _expected(self, name: str, run_seed: int) -> Undisturbed:
        with self._lock:
            if (name, run_seed) not in self._undisturbed:
                folder = self.folder / "undisturbed" / f"{len(self._undisturbed)}"
                (folder / "disk").mkdir(parents=True)
                with small_disk(folder / "disk", may_mount=False) as disk:
                    clock = JumpingClock(folder, self._library)
                    found, left = Chain(
                        variant=VARIANTS[name],
                        seed=run_seed,
                        folder=folder,
                        disk=disk,
                        clock=clock,
                        environment={**self._environment, **clock.environment},
                        rng=random.Random(0),
                        ends_s=inf,
                    ).undisturbed()
                if left:
                    raise SystemExit(f"an undisturbed run leaves files that are not documented: {left}")
                self._undisturbed[name, run_seed] = found
                shutil.rmtree(folder)
            return self._undisturbed[name, run_seed]

    def _count(self, name: str, number: int, outcome: Outcome, *, is_cold: bool) -> None:
        with self._lock:
            done_runs = Counter(runs=not outcome.given_up, wrong=len(outcome.wrong))
            self._counts[name] += outcome.counts + done_runs
            done = ", ".join(f"{count} {what}" for what, count in sorted(outcome.counts.items()) if what != "samples")
            kind = f"{' (cold)' if is_cold else ''}{' (given up: the time is over)' if outcome.given_up else ''}"
            self.say(f"run {number}, {name}{kind}: {done}")
        self._note(f"run {number}, {name} (--seed {self.seed} --only {number})", outcome.wrong)

    def _note(self, where: str, wrong: Sequence[str]) -> None:
        found = [f"{where}: {text}" for text in wrong]
        self.wrong += found
        for text in found:
            self.say(f"WRONG {text}")

    def check_places(self) -> None:
        """What killed processes left outside of their runs, once it is old, is gone after the next command."""
        self._note("folders beside the runs", self._left(self._environment))

    def _left(self, environment: Mapping[str, str]) -> list[str]:
        temporary, cache = Path(environment["TMPDIR"]), Path(environment["XDG_CACHE_HOME"]) / "edgetrain"
        time.sleep(0.2)  # the compiler of a killed command dies with it, in its own time
        age(cache)
        _age_all(temporary)
        folder = temporary.parent / "last"
        # Another shape, so that something has to be compiled; compiling sweeps.
        words = ("fit", "digits", "train.batch=2", "data.limit=64", "train.epochs=1", "--trial-time", "0s", "--out")
        folder.mkdir()
        done = edgetrain((*words, str(folder / "run")), cwd=folder, environment=environment, told=folder / "last.err")
        wrong = [] if done.code() == 0 else [f"the last command ended with {done.code()}: {done.text()[-800:]}"]
        wrong += [f"`{path.name}` is left among the temporary files" for path in temporary.iterdir()]
        wrong += [f"`{path}` is left in the cache" for path in cache.glob("builds/**/.*-*")]
        return wrong


def _age_all(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - 3600,) * 2, follow_symlinks=False)


if __name__ == "__main__":
    main()
