"""Every error a user can meet: what happened, why, and how to fix it, with a documented exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


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

    def to_json(self) -> dict[str, str | int]:
        """Plain data, so that an error crosses from the compiler's process to ours and keeps its type."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
            "exit_code": self.exit_code,
        }


class InternalError(EdgetrainError):
    """A bug in edgetrain: an invariant of ours did not hold."""

    exit_code = 1


class UsageError(EdgetrainError):
    """A flag, recipe field or argument that makes no sense."""

    exit_code = 2


class PlanInfeasibleError(EdgetrainError):
    """No plan fits the budget; the message names the smallest budget that does."""

    exit_code = 3


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
