"""Runs that may not begin or go on: they change nothing of what is there."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.campaigns.ground import SHORT, Ground, Result, contents, unexpected

_OTHER_RUNS = (
    "train.optimizer=sgd",
    "train.seed=1",
    "train.batch=16",
    "data.validation=0.2",
    "model.source=zoo:digits-cnn-bn",
    "update.mode=head",
)
_MORE = "train.epochs=2"
# What a stranger could put into a folder that is prepared for somebody's run.
_NAMES = (
    "log.jsonl", "run.lock", "report.json", "checkpoint.bin", "checkpoint.bin.tmp", "best.bin", "model.onnx",
    "model.onnx.tmp", "plot.svg", "epochs.csv", "recipe.json", "job.json", "sessions.json", "live.json",
)  # fmt: skip
_VICTIM = b"somebody's file\n" * 64


def resumes(ground: Ground) -> Result:
    """Each of six other runs, of a finished run and of one that was stopped: then the run itself still goes on."""
    finished = ground.finished_run
    stopped = _stopped(ground)
    wrong: list[str] = []
    cases = [(run, other) for run in (finished, stopped) for other in _OTHER_RUNS]
    for run, other in cases[:: 4 if ground.quick else 1]:
        folder = ground.new_folder("resume")
        copy = Path(shutil.copytree(run, folder / "run"))
        before = contents(copy)
        refused = ground.run(("fit", "--resume", other, _MORE, "--out", str(copy)), cwd=folder)
        wrong += unexpected(refused, (2, 5))
        after = contents(copy)
        changed = sorted(name for name in before.keys() | after if before.get(name) != after.get(name))
        wrong += [f"refused with {other}, and changed {name}" for name in changed]
        wrong += unexpected(ground.run(("fit", "--resume", _MORE, "--out", str(copy)), cwd=folder), (0,))
        shutil.rmtree(folder)
    tried = len(cases[:: 4 if ground.quick else 1])
    return Result(tries=tried, wrong=tuple(wrong), detail="6 changes, of a finished run and of a stopped one")


def _stopped(ground: Ground) -> Path:
    """A run of two epochs that has a checkpoint after the first."""
    folder = ground.new_folder("stopped")
    words = ("fit", *SHORT, _MORE, "train.steps=9", "train.checkpoint_every=3", "--out", str(folder / "run"))
    ground.run(words, cwd=folder)
    (folder / "run" / "report.json").unlink()
    return folder / "run"


def at_once(ground: Ground) -> Result:
    """Two runs that are started together, for one folder and without one."""
    pairs = 2 if ground.quick else 6
    wrong: list[str] = []
    _ = ground.finished_run  # compiled already
    for number in range(2 * pairs):
        folder = ground.new_folder("at-once")
        out = ("--out", "runs/one") if number % 2 else ()
        both = [ground.start(("fit", *SHORT, *out), cwd=folder) for _ in range(2)]
        codes = sorted(code if (code := command.wait(300)) is not None else -1 for command in both)
        wrong += [line for command in both for line in unexpected(command, (0, 2))]
        runs = sorted(path.parent.name for path in (folder / "runs").glob("*/report.json"))
        if out and (codes != [0, 2] or runs != ["one"]):
            wrong.append(f"two runs for one folder ended with {codes} and left {runs}")
        if not out and (codes != [0, 0] or runs != ["digits", "digits-2"]):
            wrong.append(f"two runs without a folder ended with {codes} and left {runs}")
        shutil.rmtree(folder)
    return Result(tries=2 * pairs, wrong=tuple(wrong), detail=f"{pairs} pairs for one folder, {pairs} without --out")


def links(ground: Ground) -> Result:
    """A link in the place of each file, to a file of somebody's: it is refused or replaced, and never followed."""
    wrong: list[str] = []
    names = _NAMES[::5] if ground.quick else _NAMES
    for name in names:
        folder = ground.new_folder("links")
        victim = folder / "victim"
        victim.write_bytes(_VICTIM)
        (folder / "run").mkdir()
        (folder / "run" / name).symlink_to(victim)
        wrong += unexpected(ground.run(("fit", *SHORT, "--out", "run"), cwd=folder), (0, 2, 5, 6))
        if victim.read_bytes() != _VICTIM:
            wrong.append(f"what `{name}` points to was overwritten")
        shutil.rmtree(folder)
    return Result(tries=len(names), wrong=tuple(wrong), detail=f"{len(names)} names")
