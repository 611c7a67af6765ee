"""What each session of a run took: a run that was stopped and resumed has several, and its report covers them all."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from edgetrain.errors import DeviceError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.sealed import parse_sealed, sealed
from edgetrain.run.files.plain_data import record_from_plain
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.sensors.energy import EnergyMeter

log = logging.getLogger(__name__)

SESSIONS = "sessions.json"
_FORMAT = "edgetrain.sessions/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One process's part of a run. Steps that a later session took again, after a crash, were taken in both."""

    after_step: int  # it began when this many steps were done
    steps: int
    seconds: float  # from its first step to its end, with validation
    step_seconds: float  # of that, in steps
    modelled_j: float
    measured_j: float | None = None  # None: there was no sensor that could be read
    sensor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    format: str
    sessions: tuple[Session, ...]


def read_sessions(path: Path) -> tuple[Session, ...]:
    """The sessions so far; none, with a warning, for a file that cannot be used: no run fails for its records."""
    if not path.exists():
        return ()
    try:
        file = record_from_plain(_File, parse_sealed(path.read_bytes()))
        if file.format != _FORMAT:
            raise ValueError(f"its format is not `{_FORMAT}`")
        return file.sessions
    except (OSError, ValueError) as error:
        log.warning("`%s` cannot be used (%s): the report covers this session only", path, error)
        return ()


class SessionKeeper(Callback):
    """Writes what this session took after each epoch, so that a crash loses at most the epoch that it ended."""

    def __init__(
        self,
        path: Path,
        earlier: Sequence[Session],
        meter: EnergyMeter,
        *,
        joules_per_step: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._earlier = tuple(earlier)
        self._meter = meter
        self._joules_per_step = joules_per_step
        self._clock = clock
        self._began_s: float | None = None
        self._ended_s: float | None = None
        self._first_step = self._step = 0
        self._step_seconds = 0.0

    def on_train_begin(self, logs: Logs) -> None:
        self._began_s = self._clock()
        self._first_step = self._step = int(logs["step"])

    def on_step_end(self, step: int, logs: Logs) -> None:
        self._step = step
        self._step_seconds += logs["seconds"]

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.write()

    def on_train_end(self, logs: Logs) -> None:
        self._ended_s = self._clock()

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Those before, and this one where it took a step."""
        if self._began_s is None or self._step == self._first_step:
            return self._earlier
        steps, joules = self._step - self._first_step, self._meter.joules
        this = Session(
            after_step=self._first_step,
            steps=steps,
            seconds=(self._clock() if self._ended_s is None else self._ended_s) - self._began_s,
            step_seconds=self._step_seconds,
            modelled_j=steps * self._joules_per_step,
            measured_j=joules,
            sensor=self._meter.sensor.name if self._meter.sensor is not None and joules is not None else None,
        )
        return (*self._earlier, this)

    def write(self) -> None:
        """Never raises for a disk that refuses: the run's own files say that, and are worth more."""
        data = {"format": _FORMAT, "sessions": [asdict(session) for session in self.sessions]}
        try:
            with replaced_file(self._path) as file:
                # On one line: with indents, Python's encoder makes objects that refer to each other, and after each
                # epoch they would be in memory until Python looks for such garbage.
                file.write(sealed(json.dumps(data)).encode())
        except DeviceError as error:
            log.warning("%s", error.what)
