"""Every error a user can meet: what happened, why, and how to fix it, with a documented exit code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

_QUOTED = re.compile(r"`([^`]+)`")
_PASTEABLE = re.compile(
    r"edgetrain\b|'?(--[a-z]|[a-z_]+(\.\w+)*=)"
)  # a verb, a flag, a key of the recipe with its value


class EdgetrainError(Exception):
    """Base of all errors edgetrain raises on purpose.

    `what` is one sentence with the numbers, `why` the cause, `fix` something the reader can do.
    Each subclass maps to one exit code of the command line, so scripts can tell the cases apart.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"why: {self.why}")
        if self.fix:
            lines.append(f"fix: {self.fix}")
        return "\n".join(lines)

    def _render_traceback_(self) -> list[str]:
        """IPython and notebooks show this instead of a traceback: the user's mistake is not inside edgetrain."""
        return [f"{type(self).__name__}: {self.what}", *str(self).removeprefix(self.what).strip("\n").splitlines()]

    def to_json(self) -> dict[str, object]:
        """Plain data, so that an error crosses from the compiler's process to ours and keeps its type."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
            "commands": list(pasteable(self.fix)),
            "exit_code": self.exit_code,
        }


def pasteable(fix: str) -> tuple[str, ...]:
    """What of a fix can be pasted: between backticks, whole commands and what to add to one, in order.

    Whatever else stands between backticks names something: a file, a column, a key of a recipe.
    """
    return tuple(text for text in _QUOTED.findall(fix) if _PASTEABLE.match(text))


class InternalError(EdgetrainError):
    """A bug in edgetrain: an invariant of ours did not hold."""

    exit_code = 1


class UsageError(EdgetrainError):
    """A flag, recipe field or argument that makes no sense."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """One change that makes a plan fit, or is known not to; it was planned, not estimated."""

    kind: str  # "budget", "batch" or "update"
    text: str  # with its numbers, for a person
    flags: str  # what to add to the command; empty where the change does not make it fit
    memory_bytes: int | None  # the least budget that works with it, where that was computed

    def to_text(self) -> str:
        return f"{self.text}: `{self.flags}`" if self.flags else self.text


class PlanInfeasibleError(EdgetrainError):
    """No plan fits the budget; the message names the smallest budget that does."""

    exit_code = 3
    smallest_bytes: int | None = None  # that budget; None where time or energy is what does not suffice
    ways_out: tuple[WayOut, ...] = ()

    def with_ways_out(self, ways: Sequence[WayOut]) -> PlanInfeasibleError:
        """The same error with these ways out as its fix."""
        lines = "\n".join(f"  - {way.to_text()}" for way in ways)
        error = PlanInfeasibleError(self.what, why=self.why, fix=f"add one of these to the command:\n{lines}")
        error.smallest_bytes, error.ways_out = self.smallest_bytes, tuple(ways)
        return error

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "ways_out": [asdict(way) for way in self.ways_out]}


class UnsupportedError(EdgetrainError):
    """The model holds ops that cannot be imported or differentiated; the message names every one."""

    exit_code = 4


class ModelError(EdgetrainError):
    """The model file is missing, broken, or not an ONNX graph we can read."""

    exit_code = 5


class DataError(EdgetrainError):
    """The data is missing, broken, or does not match the model."""

    exit_code = 5


class DeviceError(EdgetrainError):
    """The device, its compiler, memory or disk failed."""

    exit_code = 6


class DivergedError(EdgetrainError):
    """The loss became NaN or infinite; the last good checkpoint is kept."""

    exit_code = 7


class InterruptedRunError(EdgetrainError):
    """The user stopped the run; a checkpoint was saved."""

    exit_code = 130


ERRORS: Mapping[str, type[EdgetrainError]] = {
    cls.__name__: cls
    for cls in (
        InternalError,
        UsageError,
        PlanInfeasibleError,
        UnsupportedError,
        ModelError,
        DataError,
        DeviceError,
        DivergedError,
        InterruptedRunError,
    )
}


def error_from_json(data: Mapping[str, object]) -> EdgetrainError:
    """The inverse of `EdgetrainError.to_json`; an unknown type becomes an `InternalError`."""
    cls = ERRORS.get(str(data.get("error")), InternalError)
    return cls(str(data.get("what", "")), why=str(data.get("why", "")), fix=str(data.get("fix", "")))
