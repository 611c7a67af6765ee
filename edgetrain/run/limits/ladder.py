"""The ladder: compiled plans that a run can switch to between two steps, from little memory to much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.errors import InternalError
from edgetrain.program.artifact import Artifact

RUNGS = 5  # of a ladder made ahead: the smallest plan, keep-all, and three between

# What broken messages raise. JSON has numbers that no float holds, and infinity, which is no whole number.
BROKEN = (KeyError, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One compiled plan. All rungs of a run have the same kernels and the same parameters in the same places."""

    planned_peak_bytes: int  # of the arena
    beside_bytes: int = 0  # code, stacks and buffers
    planned_seconds: float  # modelled time of a step
    program: Path  # an artifact's folder

    @property
    def needed_bytes(self) -> int:
        """The smallest limit that it keeps."""
        return self.planned_peak_bytes + self.beside_bytes

    @staticmethod
    def of(artifact: Artifact, *, beside_bytes: int = 0) -> Rung:
        manifest = artifact.manifest
        return Rung(
            planned_peak_bytes=manifest.planned_peak_bytes,
            beside_bytes=beside_bytes,
            planned_seconds=manifest.planned_seconds,
            program=artifact.directory.resolve(),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "planned_peak_bytes": self.planned_peak_bytes,
            "beside_bytes": self.beside_bytes,
            "planned_seconds": self.planned_seconds,
            "program": str(self.program),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Rung:
        """Raises one of `BROKEN` for what `to_json` did not write."""
        return Rung(
            planned_peak_bytes=int(data["planned_peak_bytes"]),
            beside_bytes=int(data["beside_bytes"]),
            planned_seconds=float(data["planned_seconds"]),
            program=Path(data["program"]),
        )


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs by their memory, smallest first; of two with the same memory the quicker one is kept."""

    rungs: tuple[Rung, ...]

    @staticmethod
    def of(rungs: Iterable[Rung]) -> Ladder:
        """Raises `InternalError` without a rung: a run always has the plan it began with."""
        by_memory: dict[int, Rung] = {}
        for rung in sorted(rungs, key=lambda r: (r.needed_bytes, r.planned_seconds, str(r.program))):
            by_memory.setdefault(rung.needed_bytes, rung)
        if not by_memory:
            raise InternalError("a ladder needs a rung")
        return Ladder(tuple(by_memory.values()))

    @property
    def lowest(self) -> Rung:
        return self.rungs[0]

    def with_rung(self, rung: Rung) -> Ladder:
        return Ladder.of((*self.rungs, rung))

    def without(self, rung: Rung) -> Ladder:
        """The ladder without a rung that turned out to be no use. Raises `InternalError` when it was the only one."""
        return Ladder.of(r for r in self.rungs if r != rung)

    def best_within(self, limit_bytes: int | None) -> Rung | None:
        """The quickest plan that needs no more than the limit; of equally quick ones the smallest. None: none fits."""
        fitting = [r for r in self.rungs if limit_bytes is None or r.needed_bytes <= limit_bytes]
        return min(fitting, key=lambda r: (r.planned_seconds, r.needed_bytes), default=None)

    def below(self, rung: Rung) -> Rung | None:
        """The best plan with less memory than `rung`; None where it is the lowest."""
        return self.best_within(rung.needed_bytes - 1)

    def above(self, rung: Rung) -> Rung | None:
        """The next plan with more memory that is quicker as well; None where more memory would not help."""
        quicker = (
            r for r in self.rungs if r.needed_bytes > rung.needed_bytes and r.planned_seconds < rung.planned_seconds
        )
        return next(quicker, None)


def ladder_budgets(least_bytes: int, most_bytes: int, *, rungs: int = RUNGS) -> tuple[int, ...]:
    """Budgets at equal steps from the smallest that works to the one that keeps everything, both included.

    Equal steps of memory and not of ratio: what other programs take and give back are bytes.
    """
    if least_bytes >= most_bytes or rungs < 2:
        return (most_bytes,)
    return tuple(least_bytes + (most_bytes - least_bytes) * i // (rungs - 1) for i in range(rungs))
