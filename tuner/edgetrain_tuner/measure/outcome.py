"""The outcome of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MEASURED = "measured"
CHECKED = "checked"  # computes the same; nobody believes its times
REFUSED = "refused"  # does not fit: nothing was compiled
WRONG = "wrong"  # computes something else than the reference
FAILED = "failed"  # the compiler or the kernel reported an error
TIMED_OUT = "timed out"
CRASHED = "crashed"


class MeasuringLostError(Exception):
    """What measures is gone: no other trial can follow. `told` is the reason as plain data, for who can tell people."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(str(told.get("what", "")))
        self.told = dict(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one candidate. Seconds are the quickest of `n` runs each, the candidate's and the default's in turns."""

    status: str
    seconds: float = 0.0
    default_seconds: float = 0.0
    n: int = 0
    largest_error: float = 0.0  # as a share of the largest element
    against: str = ""  # "unscheduled" or "default"
    message: str = ""
    compile_s: float = 0.0  # until there was machine code

    @property
    def is_good(self) -> bool:
        return self.status == MEASURED

    @property
    def speedup(self) -> float:
        """Over the default; 0 where nothing was measured."""
        return self.default_seconds / self.seconds if self.is_good else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Outcome:
        return Outcome(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A kernel that is ready for trials, and what its default takes."""

    seconds: float
    against: str
