"""Sound that is an array."""

from __future__ import annotations

from dataclasses import dataclass

from edgetrain.dataset.samples import Array


@dataclass(frozen=True, slots=True)
class Whole:
    samples: Array
    rate: int

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, start: int, stop: int) -> Array:
        assert 0 <= start < stop <= len(self.samples)
        return self.samples[start:stop]
