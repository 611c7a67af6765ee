"""The measuring process's loop: a request a line on standard input, an answer a line on standard output.

The kernels come from the process that started this one, as TVM's JSON. Schedules may be anybody's: they are numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

import tvm

from edgetrain_tuner.measure.bench import Subject
from edgetrain_tuner.measure.outcome import MeasuringLostError, Opened, Outcome
from edgetrain_tuner.schedule import Schedule

COMPILED = {"compiled": True}


class TrialPlace(Protocol):
    """Where kernels are tried: `bench.Bench` is this machine.

    Each may raise `MeasuringLostError`; `open` whatever speaks against one kernel.
    """

    def open(self, number: int, subject: Subject) -> Opened: ...

    def trial(self, number: int, schedule: Schedule, *, budget_s: float, compiled: Callable[[], None]) -> Outcome: ...

    def close(self, number: int) -> None: ...


def packed(subject: Subject) -> dict[str, Any]:
    """A kernel as a request carries it."""
    return {
        "function": tvm.ir.save_json(subject.function),
        "outputs": subject.outputs,
        "aliases": [list(pair) for pair in subject.aliases],
        "operations": subject.operations,
    }


def serve(bench: TrialPlace, requests: TextIO, answers: TextIO) -> None:
    """Answers until standard input ends."""

    def answer(data: Mapping[str, Any]) -> None:
        answers.write(json.dumps(data) + "\n")
        answers.flush()

    for line in requests:
        request = json.loads(line)
        try:
            _REQUESTS[request["job"]](bench, request, answer)
        except MeasuringLostError as lost:
            answer({"lost": lost.told})


Answer = Callable[[Mapping[str, Any]], None]


def _open(bench: TrialPlace, request: Mapping[str, Any], answer: Answer) -> None:
    subject = Subject(
        function=tvm.ir.load_json(request["function"]),
        outputs=request["outputs"],
        aliases=tuple((int(read), int(written)) for read, written in request["aliases"]),
        operations=request["operations"],
    )
    try:
        opened = bench.open(request["number"], subject)
    except MeasuringLostError:
        raise
    except Exception as error:  # a kernel whose default cannot be built or run is left as it is; the next one may
        answer({"failed": f"{type(error).__name__}: {error}"[:500]})
        return
    answer({"seconds": opened.seconds, "against": opened.against})


def _trial(bench: TrialPlace, request: Mapping[str, Any], answer: Answer) -> None:
    parameters = {name: tuple(values) for name, values in request["parameters"].items()}
    outcome = bench.trial(
        request["number"],
        Schedule(request["rule"], parameters),
        budget_s=request["budget_s"],
        compiled=lambda: answer(COMPILED),
    )
    answer(outcome.to_json())


def _close(bench: TrialPlace, request: Mapping[str, Any], answer: Answer) -> None:
    bench.close(request["number"])
    answer({})


_REQUESTS: Mapping[str, Callable[[TrialPlace, Mapping[str, Any], Answer], None]] = {
    "open": _open,
    "trial": _trial,
    "close": _close,
}
