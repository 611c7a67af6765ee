"""`log.jsonl`: one line for every step, each written out at once, none ever listed twice.

Between them stand events, which say what happened after a step: `{"step": 12, "event": "budget", ...}`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from edgetrain.files.atomic_file import disk_error

LOG = "log.jsonl"

_MOST_LINE_BYTES = 1 << 16  # a power cut can leave a file of zeros without an end of line


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One optimizer step; steps and epochs count from 1."""

    step: int
    epoch: int
    loss: float
    learning_rate: float
    seconds: float


class StepLog:
    """An open log. `write` leaves the line with the system, `sync` on the disk; both raise `DeviceError`."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file

    def write(self, record: StepRecord) -> None:
        self._write_line(asdict(record))

    def write_event(self, event: str, step: int, values: Mapping[str, object]) -> None:
        """Something that happened between `step` and the next."""
        self._write_line({"step": step, "event": event, **values})

    def _write_line(self, data: Mapping[str, object]) -> None:
        with _disk_errors(self._path):
            self._file.write(json.dumps(data, allow_nan=False).encode() + b"\n")
            self._file.flush()

    def sync(self) -> None:
        """After this the lines survive a power cut, so that a checkpoint never knows steps that the log does not."""
        with _disk_errors(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with _disk_errors(self._path):
            self._file.close()


def open_log(path: Path, *, after_step: int) -> StepLog:
    """The log, cut back to the lines up to `after_step` (0 starts a new one). Raises `DeviceError` if the disk refuses.

    A run that was killed may have logged steps that its checkpoint does not hold, and a torn last line.
    """
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
        file.truncate(_kept_bytes(file, after_step))
        return StepLog(path, file)


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def _kept_bytes(file: BinaryIO, after_step: int) -> int:
    """The length of the log up to the first line that is torn, not ours, or of a later step."""
    kept = 0
    file.seek(0)
    while line := file.readline(_MOST_LINE_BYTES):
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            break
        if not line.endswith(b"\n") or not isinstance(step, int) or step > after_step:
            break
        kept += len(line)
    return kept
