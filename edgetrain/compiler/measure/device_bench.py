"""Trials on a device: both kernels and a harness in one static program, which a runner runs there.

The same three calls as `edgetrain_tuner.measure.bench.Bench`. When a kernel is opened, its default is compared with the
plain kernel; each candidate is then compared with the default, whose results are the same bits every time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgetrain.compiler.lower import compile_kernels, scratch_of
from edgetrain.compiler.measure.runners import Answer, Runner, run_on_device
from edgetrain.errors import DeviceError
from edgetrain.graph.extract import Kernel
from edgetrain.runtime.sources import runtime_text
from edgetrain.targets.device import Codegen
from edgetrain.toolchain.c_compiler import find_compiler, run_command, static_triple
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.arguments import Parameter, parameters_of
from edgetrain_tuner.measure.bench import (
    MOST_UNSCHEDULED_OPERATIONS,
    OPENING_S,
    TOLERANCE,
    TRIAL_S,
    Subject,
    first_line,
)
from edgetrain_tuner.measure.outcome import (
    CHECKED,
    CRASHED,
    FAILED,
    MEASURED,
    REFUSED,
    TIMED_OUT,
    WRONG,
    MeasuringLostError,
    Opened,
    Outcome,
)
from edgetrain_tuner.measure.timing import HOPELESS, LEAST_SAMPLE_S, LEAST_SAMPLES, MOST_SAMPLES
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError

CANDIDATE, REFERENCE = "candidate", "reference"
UNTIMED, ALONE, IN_TURNS = "TRIAL_UNTIMED", "TRIAL_ALONE", "TRIAL_IN_TURNS"
_RUNTIME = ("threads.c", "internal.h", "edgetrain.h")
_HARNESS = ("trial.c", "trial.h")
_OBJECTS = ("threads.o", "trial.o")
_COMPILE = ("-std=gnu11", "-O2", "-g0", "-I.")
_KINDS: Mapping[str, str] = {"float64": "TRIAL_FLOAT64", "float32": "TRIAL_FLOAT32", "float16": "TRIAL_FLOAT16"}
_BYTES: Mapping[str, int] = {"float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """A kernel as an object file, under the symbol of its part in a trial."""

    object: Path
    scratch_bytes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _Open:
    subject: Subject
    default: _Built
    against: str
    error: float  # of the default


class DeviceBench:
    """Kernels by number. Programs are built in `folder` and run by `runner`."""

    def __init__(self, codegen: Codegen, machine: Machine, runner: Runner, *, threads: int, folder: Path) -> None:
        self._codegen = codegen
        self._machine = machine
        self._runner = runner
        self._threads = threads
        self._folder = folder
        self._numbers = itertools.count()
        self._open: dict[int, _Open] = {}
        self._compiler = find_compiler(static_triple(codegen.triple))
        for name in _RUNTIME:
            (folder / name).write_text(runtime_text(name), encoding="utf-8")
        for name in _HARNESS:
            text = (files("edgetrain.compiler.measure") / "harness" / name).read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
        for name in _OBJECTS:
            self._compile(*_COMPILE, "-c", name.replace(".o", ".c"), "-o", name)

    def open(self, number: int, subject: Subject) -> Opened:
        """Compares the default with the plain kernel, and times it. Raises what building raises, and where it fails."""
        against = "unscheduled" if subject.operations <= MOST_UNSCHEDULED_OPERATIONS else "default"
        scheduled = rules.schedule(subject.function, self._machine)
        default = self._built(scheduled, subject, CANDIDATE)
        reference = self._built(subject.function if against == "unscheduled" else scheduled, subject, REFERENCE)
        answer = self._run(subject, default, reference, timing=ALONE, budget_s=OPENING_S)
        for built in (default, reference):
            built.object.unlink()
        if not answer.result:
            raise RuntimeError(f"the default schedule {_outcome_of_end(answer).message}")
        error, seconds = float(answer.result[0]), float(answer.result[1])
        if not error <= TOLERANCE:
            raise RuntimeError(f"the default schedule differs from the unscheduled kernel by {error:.1e}")
        self._open[number] = _Open(
            subject=subject, default=self._built(scheduled, subject, REFERENCE), against=against, error=error
        )
        return Opened(seconds=seconds, against=against)

    def close(self, number: int) -> None:
        self._open.pop(number).default.object.unlink()

    def trial(
        self, number: int, schedule: Schedule, *, budget_s: float = TRIAL_S, compiled: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Raises `MeasuringLostError` where the device is gone, and nothing for what a candidate does."""
        opened = self._open[number]
        began_s = time.perf_counter()
        try:
            function = rules.apply(opened.subject.function, schedule, self._machine)
        except ScheduleRefusedError as error:
            return Outcome(status=REFUSED, message=str(error))
        try:
            candidate = self._built(function, opened.subject, CANDIDATE)
            program = self._linked(opened.subject, candidate, opened.default, timing=IN_TURNS, budget_s=budget_s)
        except Exception as error:  # whatever the compiler has to say about a candidate, the next one is tried
            return Outcome(status=FAILED, message=first_line(error))
        compile_s = time.perf_counter() - began_s
        compiled()
        candidate.object.unlink()
        return self._outcome(self._answer(program), opened, compile_s)

    def _outcome(self, answer: Answer, opened: _Open, compile_s: float) -> Outcome:
        if not answer.result:
            return _outcome_of_end(answer)
        found, seconds, default_seconds = (float(word) for word in answer.result[:3])
        if not found <= TOLERANCE:
            message = f"differs by {found:.1e} of the largest element"
            return Outcome(status=WRONG, largest_error=min(found, 1e300), message=message)
        return Outcome(
            status=CHECKED if self._runner.is_emulated else MEASURED,
            seconds=seconds,
            default_seconds=default_seconds,
            n=int(answer.result[3]),
            # From the candidate to the default, and from there to what both stand for: no further than the sum.
            largest_error=found + opened.error,
            against=opened.against,
            compile_s=compile_s,
        )

    def _built(self, function: Any, subject: Subject, symbol: str) -> _Built:
        kernel = Kernel(symbol=symbol, function=function, aliases=subject.aliases)
        path = self._folder / f"{symbol}{next(self._numbers)}.o"
        compile_kernels([kernel], self._codegen, path)
        return _Built(object=path, scratch_bytes=scratch_of(kernel))

    def _run(self, subject: Subject, candidate: _Built, reference: _Built, *, timing: str, budget_s: float) -> Answer:
        return self._answer(self._linked(subject, candidate, reference, timing=timing, budget_s=budget_s))

    def _linked(self, subject: Subject, candidate: _Built, reference: _Built, *, timing: str, budget_s: float) -> Path:
        text = trial_text(
            subject,
            {CANDIDATE: candidate.scratch_bytes, REFERENCE: reference.scratch_bytes},
            threads=self._threads,
            limit_s=self._runner.run_s,
            timing=UNTIMED if self._runner.is_emulated else timing,
            budget_s=budget_s,
        )
        (self._folder / "kernels.c").write_text(text, encoding="utf-8")
        objects = [candidate.object.name, reference.object.name, *_OBJECTS]
        self._compile(*_COMPILE, "-static", "-s", "kernels.c", *objects, "-o", "trial", "-lm", "-lpthread")
        return self._folder / "trial"

    def _compile(self, *arguments: str) -> None:
        command = [*self._compiler.command, *arguments]
        run_command(command, self._compiler, self._folder, what=arguments[-1])

    def _answer(self, program: Path) -> Answer:
        try:
            return run_on_device(self._runner, program)
        except DeviceError as error:
            raise MeasuringLostError(error.to_json()) from error


def trial_text(
    subject: Subject,
    scratch_bytes: Mapping[str, Sequence[int]],
    *,
    threads: int,
    limit_s: float,
    timing: str,
    budget_s: float,
) -> str:
    """The C file that `harness/trial.h` asks for."""
    parameters = parameters_of(subject.function)
    sources = {written: read for read, written in subject.aliases}
    lines = ['#include "trial.h"', ""]
    for symbol, scratch in scratch_bytes.items():
        arguments = [*(f"t[{n}]" for n in range(len(parameters))), *(f"s[{n}]" for n in range(len(scratch)))]
        sizes = ", ".join(map(str, (*scratch, 0)))  # one more: C knows no empty array
        lines += [
            f"extern int32_t {symbol}({', '.join(['void*'] * len(arguments))});",
            f"static int32_t call_{symbol}(uint8_t* const* t, uint8_t* const* s) {{",
            f"  (void)s;\n  return {symbol}({', '.join(arguments)});",
            "}",
            f"static const size_t scratch_{symbol}[] = {{{sizes}}};",
            f"const trial_kernel trial_{symbol} = {{call_{symbol}, scratch_{symbol}, {len(scratch)}}};",
        ]
    tensors = ", ".join(
        _tensor(parameter, is_written=number in subject.written, source=sources.get(number, -1))
        for number, parameter in enumerate(parameters)
    )
    limits = f"{LEAST_SAMPLE_S!r}, {LEAST_SAMPLES}, {MOST_SAMPLES}, {HOPELESS}"
    lines += [
        f"const trial_tensor trial_tensors[] = {{{tensors}}};",
        f"const int trial_tensor_count = {len(parameters)};",
        f"const trial_terms trial = {{{threads}, {max(1, round(limit_s))}, {timing}, {budget_s!r}, {limits}}};",
    ]
    return "\n".join([*lines, ""])


def _tensor(parameter: Parameter, *, is_written: bool, source: int) -> str:
    elements = 1
    for extent in parameter.shape:
        elements *= extent
    kind, nbytes = _KINDS.get(parameter.dtype, "TRIAL_WHOLE"), _BYTES.get(parameter.dtype, 1)
    return f"{{{elements}, {nbytes}, {kind}, {int(is_written)}, {source}}}"


def _outcome_of_end(answer: Answer) -> Outcome:
    """Of a trial without a result."""
    if answer.failure:
        return Outcome(status=FAILED, message=answer.failure)
    if answer.is_late:
        return Outcome(status=TIMED_OUT, message="did not end in time on the device")
    return Outcome(status=CRASHED, message=f"ended with {answer.status} on the device")
