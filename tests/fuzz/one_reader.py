"""Fuzzes one reader for a time: starts its process again where an input ended it, and gathers what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fuzz.harness import CORPUS, FOLDER, FOUND

_STATUS = re.compile(r"^#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_KINDS = {"crash": "the process ended", "timeout": "it took too long", "oom": "it took too much memory"}
_LEAST_SECONDS = 2.0  # a process is not started again for less
_GRACE_S = 120.0  # what loading and instrumenting may take on a busy machine, beside the time for fuzzing


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """For one reader: the time for all inputs, and what a single one may take."""

    seconds: float
    timeout_s: int
    growth_mb: int
    seed: int
    runs: int | None = None  # inputs at most: with a seed, the same ones every time


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An input that broke the rule, and how."""

    path: Path
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`blocks` and `features` are libFuzzer's: edges of the code that ran, and these with how often they ran."""

    reader: str
    executions: int = 0
    blocks: int = 0
    features: int = 0
    corpus: int = 0
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()


def fuzz_reader(name: str, limits: Limits, *, corpus: Path, findings: Path) -> Outcome:
    """What came of it. New inputs that reach new code stay in `corpus`, those that fail in `findings`."""
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    before = {path.name for path in findings.iterdir()}
    outcome = Outcome(reader=name)
    began = time.monotonic()
    attempt = 0
    while (left := limits.seconds - outcome.seconds) >= _LEAST_SECONDS or attempt == 0:
        part, ended = _run_once(name, replace(limits, seconds=left, seed=limits.seed + attempt), corpus, findings)
        attempt += 1
        outcome = replace(
            outcome,
            executions=outcome.executions + part.executions,
            blocks=max(outcome.blocks, part.blocks),
            features=max(outcome.features, part.features),
            corpus=max(outcome.corpus, part.corpus),
            seconds=outcome.seconds + part.seconds,
        )
        if ended == 0:
            break
        if part.executions == 0:
            raise RuntimeError(f"the process for {name} did not begin: see {findings}")
    new = sorted(path for path in findings.iterdir() if path.name not in before and path.suffix != ".txt")
    return replace(
        outcome, seconds=time.monotonic() - began, findings=tuple(Finding(path=p, what=_what(p)) for p in new)
    )


def _run_once(name: str, limits: Limits, corpus: Path, findings: Path) -> tuple[Outcome, int]:
    """One process until its time is over or an input ends it, with its exit code."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edgetrain-fuzz-", dir=_memory_folder()) as scratch:
        command = [sys.executable, "-m", "tests.fuzz.child", name, str(limits.growth_mb), str(findings)]
        command += [f"-max_total_time={max(1, round(limits.seconds))}", f"-seed={limits.seed + 1}"]
        command += [
            f"-timeout={limits.timeout_s}",
            f"-artifact_prefix={findings}/",
            "-print_final_stats=1",
            "-max_len=65536",
        ]
        command += [str(corpus), *(str(folder / name) for folder in (CORPUS, FOUND) if (folder / name).is_dir())]
        if limits.runs is not None:
            command.append(f"-runs={limits.runs}")
        paths = [str(FOLDER.parents[1]), str(FOLDER.parents[1] / "tuner"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "TMPDIR": scratch, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with (Path(scratch) / "talk").open("w+", errors="replace") as talk:
            process = subprocess.Popen(command, stdout=talk, stderr=subprocess.STDOUT, env=environment)
            try:
                ended = process.wait(limits.seconds + limits.timeout_s + _GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                ended = process.wait()
            talk.seek(0)
            said = talk.read()
    lines = _STATUS.findall(said)
    executions, blocks, features, inputs = (int(number) for number in lines[-1]) if lines else (0, 0, 0, 0)
    if ended:
        (findings / f"end-{limits.seed}.txt").write_text(said[-20_000:], encoding="utf-8")
    seconds = time.monotonic() - began
    return Outcome(
        reader=name, executions=executions, blocks=blocks, features=features, corpus=inputs, seconds=seconds
    ), ended


def _what(path: Path) -> str:
    note = path.with_name(f"{path.name}.txt")
    if note.is_file():
        return note.read_text(encoding="utf-8").strip().splitlines()[-1]
    return next((words for kind, words in _KINDS.items() if path.name.startswith(kind)), "it failed")


def _memory_folder() -> str | None:
    """A file system in memory, where there is one: each input becomes a file, thousands of times a second."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
