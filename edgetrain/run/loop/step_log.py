"""`log.jsonl`: one line for every step, each written out at once, none ever listed twice.

Between them stand events, which say what happened after a step: `{"step": 12, "event": "budget", ...}`, or
`{"step": 12, "event": "validation", "epoch": 1, "loss": 0.4, ...}`.

What a run was like is here and nowhere else: neither its memory nor its checkpoints hold more for more steps.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from edgetrain.files.atomic_file import disk_errors
from edgetrain.files.private import make_private_folder, open_private
from edgetrain.files.texts import parse_json
from edgetrain_tuner import disk

LOG = "log.jsonl"
VALIDATION = "validation"  # the event that holds an epoch's metrics

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
        with disk_errors(self._path):
            self._file.write(json.dumps(data, allow_nan=False).encode() + b"\n")
            self._file.flush()

    def sync(self) -> None:
        """After this the lines survive a power cut, so that a checkpoint never knows steps that the log does not."""
        with disk_errors(self._path):
            disk.sync(self._file.fileno())

    def close(self) -> None:
        with disk_errors(self._path):
            self._file.close()


def open_log(path: Path, *, after_step: int, validated_step: int | None = None) -> StepLog:
    """The log, cut back to the lines up to `after_step` (0 starts a new one). Raises `DeviceError` if the disk refuses.

    A run that was killed may have logged steps that its checkpoint does not hold, and a torn last line. A validation
    after `validated_step` (`None`: any) is one of them: the run will validate again, and list it then.
    """
    with disk_errors(path):
        make_private_folder(path.parent)
        file = _open_regular(path)
        file.truncate(_kept_bytes(file, after_step, after_step if validated_step is None else validated_step))
        return StepLog(path, file)


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Line after line, up to the first that is torn or not ours; none where there is no log that can be read."""
    try:
        with path.open("rb") as file:
            for record, _ in _records(file):
                yield record
    except OSError:
        return


def _open_regular(path: Path) -> BinaryIO:
    """The file to read and append to. Raises `OSError` for a link, whose target is not ours to cut, or a pipe."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    file = disk.stream(open_private(path, flags), "a+b")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.ELOOP, "it is no regular file")
    return file


def _kept_bytes(file: BinaryIO, after_step: int, validated_step: int) -> int:
    """The length of the log up to the first line that is torn, not ours, or of a later step or validation."""
    kept = 0
    file.seek(0)
    for record, nbytes in _records(file):
        if record["step"] > (validated_step if record.get("event") == VALIDATION else after_step):
            break
        kept += nbytes
    return kept


def _records(file: BinaryIO) -> Iterator[tuple[dict[str, Any], int]]:
    """Each line with its length, up to the first that is torn or not ours."""
    while line := file.readline(_MOST_LINE_BYTES):
        try:
            record = parse_json(line)
        except ValueError:
            return
        if not line.endswith(b"\n") or not isinstance(record, dict) or not isinstance(record.get("step"), int):
            return
        yield record, len(line)
