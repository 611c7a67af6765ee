"""The questions to a peer and its answers: lines of JSON between two processes.

A peer runs in its own process, possibly with another Python, because libraries with their own thread pools and their
own protobuf do not work well in one process. It takes a step when it is told to, so both sides still take turns. It
imports neither edgetrain nor TVM.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LABELS = "labels"
STEP, GROW = "step", "grow"

Step = Callable[[], float]  # takes one training step and returns the loss before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Seconds of one step, the mean over those of the turn, and the loss of its first."""

    seconds: float
    loss: float


def take_turn(step: Step, count: int) -> Turn:
    """Takes `count` steps one after the other, as training does. Where they are several, they are short: the first is
    left out, for it finds the caches full of what the other side left there, and its threads asleep."""
    loss = step() if count > 1 else None
    started = time.perf_counter()
    losses = [step() for _ in range(count)]
    return Turn(seconds=(time.perf_counter() - started) / count, loss=losses[0] if loss is None else loss)


class CannotError(Exception):
    """The peer has no way to train this model; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How a model is trained: an ONNX file with fixed shapes, and two of arrays.

    `parameters` holds what the file stores, by name, so that reading it takes no more memory than its values; `data`
    one batch, by input name, and `labels`.
    """

    peer: str
    model: str
    parameters: str
    data: str
    threads: int
    learning_rate: float
    momentum: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))

    def batch(self) -> dict[str, Array]:
        with np.load(self.data) as file:
            return {name: file[name] for name in file.files}

    def values(self, names: Iterable[str]) -> Iterator[tuple[str, Array]]:
        """Stored arrays by name, one after the other."""
        with np.load(self.parameters) as file:
            yield from ((name, file[name]) for name in names)

    @property
    def path(self) -> Path:
        return Path(self.model)
