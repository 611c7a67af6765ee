"""The samples that a model finds hardest, as few as a person looks at."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

WORST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the model says about one sample. Classes by number, values in the units of the data; None: neither."""

    index: int  # within its part
    loss: float
    is_wrong: bool | None = None  # None where right and wrong do not apply
    actual: float | None = None
    predicted: float | None = None
    confidence: float | None = None  # in what it predicted


class WorstTally:
    """Keeps the verdicts with the highest losses; of equal losses the earlier samples."""

    def __init__(self, most: int = WORST) -> None:
        self._most = most
        self._heap: list[tuple[float, int, Verdict]] = []  # the smallest of those kept comes first

    def is_kept(self, loss: float) -> bool:
        """Whether a later sample with this loss would be kept: what is not needs no verdict."""
        return len(self._heap) < self._most or loss > self._heap[0][0]

    def add(self, verdict: Verdict) -> None:
        entry = (verdict.loss, -verdict.index, verdict)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def finish(self) -> tuple[Verdict, ...]:
        """The hardest first."""
        return tuple(verdict for _, _, verdict in sorted(self._heap, key=lambda entry: (-entry[0], -entry[1])))
