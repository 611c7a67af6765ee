"""Timing two things side by side on a machine that does other things too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

LEAST_SAMPLE_S = 2e-4  # shorter calls are repeated within a sample: a clock and a call of Python cost some 100 ns
LEAST_SAMPLES, MOST_SAMPLES = 4, 30
HOPELESS = 2  # times the default, after which a candidate is not timed further

Call = Callable[[], None]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The quickest run of each: what else the machine does can only add to it."""

    seconds: float
    default_seconds: float
    n: int


def quickest(call: Call, *, budget_s: float, clock: Clock = time.perf_counter) -> float:
    """The quickest of some runs, in about that much time."""
    repeats = _repeats(call, clock)
    samples = [_sample(call, repeats, clock)]
    while len(samples) < LEAST_SAMPLES or (
        len(samples) < MOST_SAMPLES and sum(samples) * repeats + samples[0] * repeats < budget_s
    ):
        samples.append(_sample(call, repeats, clock))
    return min(samples)


def in_turns(candidate: Call, default: Call, *, budget_s: float, clock: Clock = time.perf_counter) -> Pair:
    """Both in turns, one sample of this, one of that, in about that much time; less where the candidate is hopeless."""
    repeats = _repeats(default, clock)
    own: list[float] = []
    other: list[float] = []
    began = clock()
    while len(own) < LEAST_SAMPLES or (len(own) < MOST_SAMPLES and clock() - began < budget_s):
        own.append(_sample(candidate, repeats, clock))
        other.append(_sample(default, repeats, clock))
        if len(own) >= LEAST_SAMPLES and min(own) > HOPELESS * min(other):
            break
    return Pair(seconds=min(own), default_seconds=min(other), n=len(own))


def _repeats(call: Call, clock: Clock) -> int:
    """How often a sample calls it."""
    call()
    took_s = _sample(call, 1, clock)
    return max(1, min(1000, round(LEAST_SAMPLE_S / max(took_s, 1e-7))))


def _sample(call: Call, repeats: int, clock: Clock) -> float:
    began = clock()
    for _ in range(repeats):
        call()
    return (clock() - began) / repeats
