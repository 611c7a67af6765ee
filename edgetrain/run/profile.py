"""Seconds of every kernel, measured where they will run: inside the program, on its own data, with its own threads."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Protocol

from edgetrain.graph.ir import TrainGraph


class ProfiledEngine(Protocol):
    """An engine of a program that was built to be profiled."""

    def call(self, function: str) -> None: ...

    def op_seconds(self, function: str) -> tuple[float, ...]:
        """What each op of the function took since the last question, all its runs together."""
        ...


def profile(
    engine: ProfiledEngine, graph: TrainGraph, *, rounds: int = 5, warm_up: int = 1
) -> Mapping[str, Mapping[str, float]]:
    """Median seconds of each op by function, over some calls of each. Calls change parameters, as training does.

    The program must keep everything: an op that runs twice in a call would count double.
    """
    found: dict[str, Mapping[str, float]] = {}
    for function, ops in graph.functions.items():
        for _ in range(warm_up):
            engine.call(function)
        engine.op_seconds(function)
        samples: list[tuple[float, ...]] = []
        for _ in range(rounds):
            engine.call(function)
            samples.append(engine.op_seconds(function))
        found[function] = {
            op.name: statistics.median(times) for op, times in zip(ops, zip(*samples, strict=True), strict=True)
        }
    return found
