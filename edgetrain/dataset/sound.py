"""Long sound in little memory: read in pieces, resampled in pieces, searched in pieces for its loudest stretch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edgetrain.dataset.samples import Array

_PIECE = 1 << 15  # samples that are looked at together


class Sound(Protocol):
    """Mono sound in −1 to 1. Any stretch of it can be read, again and again, with the same bits."""

    @property
    def rate(self) -> int: ...

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> Array: ...


@dataclass(frozen=True, slots=True)
class Resampled:
    """Another sound at another rate: a mean over the new sample's span when slower, straight lines when faster."""

    source: Sound
    rate: int

    def __len__(self) -> int:
        length = len(self.source)
        return max(1, round(length * self.rate / self.source.rate)) if length else 0

    def read(self, start: int, stop: int) -> Array:
        if self.rate == self.source.rate:
            return self.source.read(start, stop)
        return self._lines(start, stop) if self.rate > self.source.rate else self._means(start, stop)

    def _lines(self, start: int, stop: int) -> Array:
        at = (np.arange(start, stop) + 0.5) * self.source.rate / self.rate - 0.5
        first = max(0, math.floor(at[0]))
        last = min(len(self.source), math.floor(at[-1]) + 2)
        return np.interp(at, np.arange(first, last), self.source.read(first, last))

    def _means(self, start: int, stop: int) -> Array:
        """Means over fractional spans: differences of the integral, which is piecewise linear."""
        edges = np.minimum(np.arange(start, stop + 1) * self.source.rate / self.rate, len(self.source))
        first, last = math.floor(edges[0]), min(len(self.source), math.ceil(edges[-1]))
        integral = np.concatenate(([0.0], np.cumsum(self.source.read(first, last), dtype=np.float64)))
        means = np.diff(np.interp(edges, np.arange(first, last + 1), integral))
        return means / np.maximum(np.diff(edges), 1e-9)


def loudest(sound: Sound, length: int) -> Array:
    """The loudest stretch of that length, the first of several; shorter sound is padded with silence on both sides."""
    spare = len(sound) - length
    if spare <= 0:
        whole = sound.read(0, len(sound)) if len(sound) else np.zeros(0)
        return np.pad(whole, (-spare // 2, -spare - (-spare // 2)))
    best_energy, best_start = -math.inf, 0
    energy = np.zeros(1)  # of all sound before each sample, from `start` to what was read
    for start in range(0, spare + 1, _PIECE):
        stop = min(start + _PIECE, spare + 1)  # the stretches that begin here
        known = start + len(energy) - 1
        energy = np.concatenate((energy, _running(sound, known, stop - 1 + length, energy[-1])))
        stretches = energy[length : length + stop - start] - energy[: stop - start]
        here = int(np.argmax(stretches))
        if stretches[here] > best_energy:
            best_energy, best_start = float(stretches[here]), start + here
        energy = energy[stop - start :]
    return sound.read(best_start, best_start + length)


def _running(sound: Sound, start: int, stop: int, before: float) -> Array:
    """The energy of all sound up to each sample's end, where `before` is that up to `start`."""
    squares = np.square(sound.read(start, stop), dtype=np.float64)
    return np.cumsum(np.concatenate(([before], squares)))[1:]
