"""Compiles, checks and times candidates: the work of the measuring process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.arguments import Array, aligned_copy, draw, largest_error, parameters_of
from edgetrain_tuner.measure.outcome import FAILED, MEASURED, REFUSED, WRONG, Opened, Outcome
from edgetrain_tuner.measure.timing import Call, in_turns, quickest
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError

TOLERANCE = 1e-4  # of the largest element: sums of a million terms in another order stay below it
MOST_UNSCHEDULED_OPERATIONS = 3e8  # beyond, plain loops take too long: the default is the reference
TRIAL_S = 0.15
OPENING_S = 0.05
_NOBODY_WROTE = 77


class Runnable(Protocol):
    """A kernel as machine code."""

    def bound(self, arrays: Sequence[Array]) -> Call:
        """A call on these arrays. It raises where the kernel reports an error."""
        ...

    def close(self) -> None: ...


Aliases = tuple[tuple[int, int], ...]
Builder = Callable[[Any, Aliases], Runnable]  # of a scheduled PrimFunc, and a `Subject`'s aliases


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A kernel to measure; its last `outputs` parameters are written.

    `aliases` are the positions of parameters that are one tensor in a program: read by one, written by the other.
    """

    function: Any
    outputs: int
    aliases: Aliases = ()
    operations: int = 0

    @property
    def written(self) -> range:
        count = len(self.function.params)
        return range(count - self.outputs, count)


@dataclass(kw_only=True)
class _Open:
    """A kernel under measurement: its default as a call, what to compare with."""

    subject: Subject
    default: Runnable
    default_call: Call
    inputs: list[Array]
    expected: list[Array]
    against: str


class Bench:
    """Kernels by number. `build` turns a scheduled kernel into machine code for this machine."""

    def __init__(self, build: Builder, machine: Machine) -> None:
        self._build = build
        self._machine = machine
        self._open: dict[int, _Open] = {}

    def open(self, number: int, subject: Subject) -> Opened:
        """Builds the default and the reference. Raises what building and running raise."""
        default = self._build(rules.schedule(subject.function, self._machine), subject.aliases)
        against = "unscheduled" if subject.operations <= MOST_UNSCHEDULED_OPERATIONS else "default"
        reference = self._build(subject.function, subject.aliases) if against == "unscheduled" else default
        parameters = parameters_of(subject.function)
        for is_positive in (False, True):
            inputs = draw(parameters, is_positive=is_positive)
            expected = _run(reference, subject, inputs)
            if all(_is_finite(array) for array in expected):
                break
        if reference is not default:
            reference.close()
        call = default.bound(_laid_out(subject, inputs))
        self._open[number] = _Open(
            subject=subject, default=default, default_call=call, inputs=inputs, expected=expected, against=against
        )
        error = largest_error(_run(default, subject, inputs), expected)
        if not error <= TOLERANCE:
            raise RuntimeError(f"the default schedule differs from the unscheduled kernel by {error:.1e}")
        return Opened(seconds=quickest(call, budget_s=OPENING_S), against=against)

    def close(self, number: int) -> None:
        """Lets go of a kernel's arrays and code."""
        self._open.pop(number).default.close()

    def trial(
        self, number: int, schedule: Schedule, *, budget_s: float = TRIAL_S, compiled: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Never raises for what a candidate does; `compiled` is called when there is machine code."""
        opened = self._open[number]
        subject = opened.subject
        began_s = time.perf_counter()
        try:
            function = rules.apply(subject.function, schedule, self._machine)
        except ScheduleRefusedError as error:
            return Outcome(status=REFUSED, message=str(error))
        try:
            runnable = self._build(function, subject.aliases)
        except Exception as error:  # whatever the compiler has to say about a candidate, the next one is tried
            return Outcome(status=FAILED, message=first_line(error))
        compile_s = time.perf_counter() - began_s
        compiled()
        try:
            error_found = largest_error(_run(runnable, subject, opened.inputs), opened.expected)
            if not error_found <= TOLERANCE:
                message = f"differs by {error_found:.1e} of the largest element"
                return Outcome(status=WRONG, largest_error=min(error_found, 1e300), message=message)
            call = runnable.bound(_laid_out(subject, opened.inputs))
            pair = in_turns(call, opened.default_call, budget_s=budget_s)
        except RuntimeError as error:
            return Outcome(status=FAILED, message=first_line(error))
        finally:
            runnable.close()
        return Outcome(
            status=MEASURED,
            seconds=pair.seconds,
            default_seconds=pair.default_seconds,
            n=pair.n,
            largest_error=error_found,
            against=opened.against,
            compile_s=compile_s,
        )


def _laid_out(subject: Subject, inputs: Sequence[Array]) -> list[Array]:
    """Arrays for one call: the inputs, and outputs that nobody has written, or that hold what is updated in place."""
    arrays = list(inputs)
    for number in subject.written:
        arrays[number] = aligned_copy(inputs[number])
        # An element that nobody writes must show.
        arrays[number][...] = np.nan if arrays[number].dtype.kind == "f" else _NOBODY_WROTE
    for read, written in subject.aliases:
        arrays[written][...] = inputs[read]
        arrays[read] = arrays[written]
    return arrays


def _run(runnable: Runnable, subject: Subject, inputs: Sequence[Array]) -> list[Array]:
    """The results of one run."""
    arrays = _laid_out(subject, inputs)
    runnable.bound(arrays)()
    return [arrays[number] for number in subject.written]


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
