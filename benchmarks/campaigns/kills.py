"""Runs that are killed, stopped and starved of disk, as `benchmarks.soak` does it, so many times instead of so long."""

from __future__ import annotations

from collections import Counter
from math import inf

from benchmarks.campaigns.ground import Ground, Result
from benchmarks.soak import FOUND, Soak
from benchmarks.soaking.disk import can_mount

_RUNS, _QUICK_RUNS = 24, 3
_KINDS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "disk", "budget met", "clock", "junk")


def kills(ground: Ground) -> Result:
    """Each ends with the parameters, results, log and checkpoints of the run that nobody disturbed."""
    runs = _QUICK_RUNS if ground.quick else _RUNS
    soak = Soak(folder=ground.new_folder("soak"), seed=ground.seed, keep=FOUND, ends_s=inf, may_mount=can_mount())
    for number in range(runs):
        soak.run_one(number)
    soak.check_places()
    counts: Counter[str] = Counter(soak.counts())
    detail = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS if counts[kind])
    said = f"{runs} runs in {counts['sessions']} processes: {detail}; full disks: {soak.pressure}"
    return Result(tries=runs, wrong=tuple(soak.wrong), detail=said)
