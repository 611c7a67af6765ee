"""The soak: a minute of it, and that it sees what it looks for."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reliability import ROOT
from benchmarks.soaking.chain import DOCUMENTED, Outcome, Undisturbed, age, differences, leftovers, log_of, results_of
from benchmarks.soaking.clock import JumpingClock, build_clock
from benchmarks.soaking.long_run import Moment, judged, last_step
from benchmarks.soaking.process import Command, sample
from benchmarks.soaking.session import random_disturbances
from benchmarks.soaking.variants import VARIANTS


@pytest.mark.compile
def test_a_minute_of_soak_holds(tmp_path: Path) -> None:
    rows = soaked(tmp_path, minutes=1)
    if rows["all"]["sessions"] == 0:  # a busy machine has not trained the undisturbed run in that time
        rows = soaked(tmp_path, minutes=5)
    assert rows["all"]["sessions"] >= 1
    assert rows["all"]["violations"] == []
    assert rows["one process, left alone"]["steps"] > 0


def soaked(folder: Path, *, minutes: int) -> dict[str, Any]:
    """What the soak counted of each kind of run."""
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", str(minutes), "--json", str(folder / "soak.json")]
    done = subprocess.run(
        [*command, "--keep", str(folder / "kept")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "kept").exists()
    return {row["run"]: row for row in json.loads((folder / "soak.json").read_text())["rows"]}


@pytest.mark.slow
def test_the_clock_of_a_process_jumps_while_it_runs_and_its_monotonic_clock_does_not(tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path, build_clock(tmp_path))
    ask = "import time\nfor _ in range(3):\n input()\n print(time.time(), time.monotonic(), flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", ask],
        env={**os.environ, **clock.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for seconds in (0, 10_000_000, -10_000_000):
        clock.jump(seconds)
        process.stdin.write("\n")
        process.stdin.flush()
        wall, monotonic = map(float, process.stdout.readline().split())
        assert abs(wall - time.time() - seconds) < 1000
        assert abs(monotonic - time.monotonic()) < 1000
    process.communicate()


def test_files_that_nobody_documented_are_left_over(tmp_path: Path) -> None:
    for name in (*DOCUMENTED, ".program-x", ".log.jsonl.0123456789abcdef.tmp", "request.json"):
        (tmp_path / name).touch()
    assert leftovers(tmp_path) == [".log.jsonl.0123456789abcdef.tmp", ".program-x", "request.json"]


def test_every_file_that_is_documented_is_in_the_page_on_files() -> None:
    page = (ROOT / "docs" / "artifact.md").read_text()
    assert [name for name in DOCUMENTED if f"`{name}`" not in page and f"`{name}/`" not in page] == []


def test_only_what_is_hidden_is_aged(tmp_path: Path) -> None:
    for name in (".old", "new"):
        (tmp_path / name).touch()
    age(tmp_path)
    assert time.time() - (tmp_path / ".old").stat().st_mtime > 3000
    assert time.time() - (tmp_path / "new").stat().st_mtime < 3000


def test_logs_are_compared_without_times_and_without_events_of_the_way(tmp_path: Path) -> None:
    step = {"step": 1, "epoch": 1, "loss": 0.5, "seconds": 0.1}
    validation = {"step": 1, "event": "validation", "epoch": 1, "loss": 0.4}
    lines = (step, {"step": 1, "event": "budget", "cause": "asked"}, validation)
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert log_of(tmp_path) == ((("step", 1), ("epoch", 1), ("loss", 0.5)), tuple(validation.items()))
    assert last_step(log) == 1
    log.write_bytes(log.read_bytes() + b'{"step": 2, "ep')
    assert last_step(log) == 1
    assert last_step(tmp_path / "none") is None


def test_a_process_is_sampled_while_it_runs_and_its_bugs_are_found(tmp_path: Path) -> None:
    mine = sample(os.getpid())
    assert mine is not None
    assert mine.descriptors >= 3
    assert mine.resident_bytes > 1 << 20
    assert mine.cpu_s > 0
    command = Command(("no-such-verb",), cwd=tmp_path, environment=os.environ, told=tmp_path / "said.err")
    assert command.wait(120) == 2
    assert sample(command.pid) is None
    assert command.bugs() == []
    command.told.write_text("Traceback (most recent call last):\n")
    assert command.bugs() == ["Traceback (most recent call last)"]


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_gives_the_same_disturbances_in_order(seed: int) -> None:
    first, again = (random_disturbances(random.Random(seed), dense=False) for _ in range(2))
    assert first == again
    assert list(first) == sorted(first, key=lambda d: (d.within, d.after_s))


def test_every_variant_says_its_seed_and_needs_one_core() -> None:
    for variant in VARIANTS.values():
        words = variant.fit(7)
        assert "train.seed=7" in words
        assert words[words.index("--threads") + 1] == "1"


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Path, Undisturbed]:
    """What a run leaves, as far as it is compared, and what it is compared with."""
    report = {"parameters_sha256": "ab", "steps": 2, "kept_epoch": 1, "losses": [0.5, 0.4], "test_accuracy": 0.9}
    (tmp_path / "report.json").write_text(json.dumps(report))
    lines = ({"step": n, "epoch": 1, "loss": 0.5, "seconds": 0.1} for n in (1, 2))
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "checkpoint.bin").write_bytes(bytes(1000))
    expected = Undisturbed(
        parameters_sha256="ab",
        results=results_of(report),
        log=log_of(tmp_path),
        checkpoint_bytes=1000,
        most_descriptors=8,
        most_resident_bytes=80 << 20,
    )
    return tmp_path, expected


def test_a_run_that_is_the_same_differs_in_nothing(finished: tuple[Path, Undisturbed]) -> None:
    assert differences(*finished, Outcome(most_descriptors=8, most_resident_bytes=80 << 20)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters_sha256": "cd"}, "other bits"),
        ({"results": {"test_accuracy": 0.8}}, "test_accuracy"),
        ({"log": ()}, "log.jsonl"),
        ({"checkpoint_bytes": 400}, "checkpoint.bin has 1000 bytes"),
        ({"most_descriptors": 2}, "20 descriptors"),
        ({"most_resident_bytes": 8 << 20}, "bytes resident"),
    ],
)
def test_each_difference_is_told(finished: tuple[Path, Undisturbed], change: dict[str, Any], words: str) -> None:
    out, expected = finished
    outcome = Outcome(most_descriptors=8, most_resident_bytes=80 << 20)
    if "descriptors" in words:
        outcome.most_descriptors = 20
    (told,) = differences(out, replace(expected, **change), outcome)
    assert words in told


def moments(growth: Callable[[int], dict[str, int | float]]) -> list[Moment]:
    flat = {"descriptors": 8, "resident_bytes": 80 << 20, "cpu_s": 0.0, "checkpoint_bytes": 80_000, "step": 0}
    return [
        Moment(**{"at_s": float(n), **flat, "step": 100 * n, "cpu_s": n / 4, **growth(n)})  # type: ignore[arg-type]
        for n in range(200)
    ]


@pytest.mark.parametrize(
    ("growth", "words"),
    [
        (lambda n: {"resident_bytes": (80 << 20) + n * (100 << 10)}, "resident memory"),
        (lambda n: {"descriptors": 8 + n // 10}, "descriptors"),
        (lambda n: {"cpu_s": n * n / 400}, "steps a second"),
        (lambda n: {"checkpoint_bytes": 80_000 + 11 * n}, "checkpoint"),
        (lambda n: {}, ""),
    ],
)
def test_what_grows_in_a_long_run_is_told(
    growth: Callable[[int], dict[str, int | float]], words: str, tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n')
    wrong = judged(moments(growth), tmp_path, 0, []).wrong
    assert [words in told for told in wrong] == ([True] if words else [])
