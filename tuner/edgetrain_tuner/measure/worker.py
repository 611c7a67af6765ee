"""A measuring process that is kept: it answers trial after trial, and its death is an outcome like another."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

from edgetrain_tuner.measure.outcome import CRASHED, FAILED, TIMED_OUT, MeasuringLostError, Opened, Outcome
from edgetrain_tuner.schedule import Schedule

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long the process may take for each part of its work."""

    start_s: float = 120.0  # until a kernel is open, the process's own start included
    compile_s: float = 10.0
    run_s: float = 20.0  # check and timing


class _Ended(Exception):
    """The process is gone."""


class _Silent(Exception):
    """The process did not answer in time."""


class Worker:
    """Use as a context. `command` starts a process that runs `serve`; it is started when first needed."""

    def __init__(self, command: Sequence[str], hello: Mapping[str, Any], *, limits: Limits | None = None) -> None:
        self._command = list(command)
        self._hello = dict(hello)  # the first line that the process reads
        self._limits = limits or Limits()
        self._kernels: dict[int, Mapping[str, Any]] = {}
        self._opened: dict[int, Opened] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self.restarts = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def open(self, number: int, kernel: Mapping[str, Any]) -> Opened | str:
        """Makes a kernel ready for trials; the reason where that fails. `kernel` is from `serve.packed`."""
        self._kernels[number] = kernel
        try:
            return self._reopen(number)
        except (_Ended, _Silent) as error:
            self._stop()
            return "the measuring process ended" if isinstance(error, _Ended) else "it took too long"

    def close(self, number: int) -> None:
        """Lets go of what a kernel holds."""
        self._kernels.pop(number, None)
        if self._opened.pop(number, None) is not None and self._process is not None:
            with contextlib.suppress(_Ended, _Silent):
                self._ask({"job": "close", "number": number}, self._limits.run_s)

    def measure(self, number: int, schedule: Schedule, *, budget_s: float) -> Outcome:
        """One trial. A process that crashed or hangs is ended, and another started for the next trial."""
        limits = self._limits
        try:
            if number not in self._opened:
                failure = self._reopen(number)
                if isinstance(failure, str):
                    return Outcome(status=FAILED, message=failure)
            parameters = {name: list(values) for name, values in schedule.parameters.items()}
            request = {"job": "trial", "number": number, "rule": schedule.rule, "parameters": parameters}
            answer = self._ask({**request, "budget_s": budget_s}, limits.compile_s)
            if "compiled" in answer:
                answer = self._read(limits.run_s)
            return Outcome.from_json(answer)
        except _Silent:
            self._stop()
            return Outcome(status=TIMED_OUT, message=f"no answer in {limits.compile_s:g} s or {limits.run_s:g} s")
        except _Ended:
            code = self._stop()
            return Outcome(status=CRASHED, message=f"the measuring process ended with {code}")

    def _reopen(self, number: int) -> Opened | str:
        answer = self._ask({"job": "open", "number": number, **self._kernels[number]}, self._limits.start_s)
        if "failed" in answer:
            return str(answer["failed"])
        self._opened[number] = Opened(**answer)
        return self._opened[number]

    def _ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        if self._process is None:
            self._start()
        self._write(request)
        return self._read(limit_s)

    def _start(self) -> None:
        # In a group of its own: Ctrl-C reaches whoever started us, and they end it.
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:  # of the machine: it says nothing about the schedule whose turn it is
            told = {
                "error": "DeviceError",
                "what": "the measuring process does not start",
                "why": error.strerror or str(error),
                "fix": "close other programs, or raise the limit on processes (`ulimit -u`)",
            }
            raise MeasuringLostError(told) from error
        self._write(self._hello)

    def _write(self, data: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(data).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise _Ended from error

    def _read(self, limit_s: float) -> dict[str, Any]:
        """The next line that is an answer. Raises `MeasuringLostError` where it is that no other will come."""
        assert self._process is not None
        assert self._process.stdout is not None
        until = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            self._unread += _next_bytes(self._process.stdout, until - time.monotonic())
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "lost" in answer:
            raise MeasuringLostError(answer["lost"])
        return answer

    def _stop(self) -> int | None:
        process, self._process, self._unread = self._process, None, b""
        self._opened.clear()
        if process is None:
            return None
        self.restarts += 1
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return process.wait()


def _next_bytes(stream: IO[bytes], limit_s: float) -> bytes:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        if not selector.select(max(limit_s, 0.0)):
            raise _Silent
    found = os.read(stream.fileno(), _CHUNK)
    if not found:
        raise _Ended
    return found
