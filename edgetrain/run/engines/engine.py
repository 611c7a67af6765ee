"""The two protocols that the training loop uses: one for the device, one for the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# The element type depends on the tensor (float32, int64), which NumPy's static types cannot follow.
Array = NDArray[Any]


class Engine(Protocol):
    """A program, loaded and ready. Arrays and `saved` are views: they stay valid until `close`."""

    def tensor(self, name: str) -> Array:
        """A writable view of the tensor in the arena."""
        ...

    def call(self, function: str) -> None:
        """Runs `step`, `evaluate` or `apply` once, to its end."""
        ...

    @property
    def saved(self) -> memoryview:
        """Parameters and optimizer state: all that one step hands to the next, and what a checkpoint holds."""
        ...

    def release(self) -> None:
        """Gives back the memory of views, where they are copies of what is in storage. Called between pieces of `saved`
        by who goes through it."""
        ...

    def measured_peak_bytes(self) -> int:
        """The largest extent of the arena that calls have used so far."""
        ...

    def close(self) -> None: ...


class BatchSource(Protocol):
    """Training batches in an order that depends on the seed and the position alone."""

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one epoch."""
        ...

    def seek(self, position: tuple[int, int]) -> None:
        """The next `fill` gives this (epoch, batch within it), both counted from 0."""
        ...

    def fill(self, inputs: Mapping[str, Array], labels: Array) -> None:
        """Writes the next training batch into the buffers and moves on by one."""
        ...

    def evaluation(self, split: str, inputs: Mapping[str, Array], labels: Array) -> Iterator[int]:
        """Fills the buffers with one batch of the split after another; yields how many rows are valid."""
        ...


def scalar(value: Array) -> float:
    """The one number that a tensor of a single element holds."""
    return float(np.asarray(value).reshape(()))
