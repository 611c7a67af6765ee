"""Seconds of every kernel, measured where they will run: inside the program, on its own data, with its own threads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from edgetrain.graph.ir import TrainGraph


class ProfiledEngine(Protocol):
    """An engine of a program that was built to be profiled."""

    def call(self, function: str) -> None: ...

    def op_seconds(self, function: str) -> tuple[float, ...]:
        """What each op of the function took since the last question, all its runs together."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionProfile:
    """Medians over the calls: each op's seconds, and those of a call as a whole."""

    op_seconds: Mapping[str, float]
    call_s: float


def profile(
    engine: ProfiledEngine, graph: TrainGraph, *, rounds: int = 5, warm_up: int = 1
) -> Mapping[str, Mapping[str, float]]:
    """Median seconds of each op by function, over some calls of each. Calls change parameters, as training does.

    The program must keep everything: an op that runs twice in a call would count double.
    """
    return {
        function: profile_function(engine, graph, function, rounds=rounds, warm_up=warm_up).op_seconds
        for function in graph.functions
    }


def profile_function(
    engine: ProfiledEngine, graph: TrainGraph, function: str, *, rounds: int = 5, warm_up: int = 1
) -> FunctionProfile:
    """`profile` of one function, with what its calls took as a whole."""
    for _ in range(warm_up):
        engine.call(function)
    engine.op_seconds(function)
    samples: list[tuple[float, ...]] = []
    calls: list[float] = []
    for _ in range(rounds):
        started_s = time.perf_counter()
        engine.call(function)
        calls.append(time.perf_counter() - started_s)
        samples.append(engine.op_seconds(function))
    by_op = zip(graph.functions[function], zip(*samples, strict=True), strict=True)
    return FunctionProfile(
        op_seconds={op.name: statistics.median(times) for op, times in by_op}, call_s=statistics.median(calls)
    )
