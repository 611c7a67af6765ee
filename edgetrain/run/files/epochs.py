"""`epochs.csv`: a line for each epoch, for spreadsheets and for `pandas.read_csv`."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, BinaryIO, Self

from edgetrain.files.atomic_file import disk_errors, replaced_file
from edgetrain.files.private import open_private
from edgetrain.run.loop.step_log import LOG, VALIDATION, read_records
from edgetrain_tuner import disk

EPOCHS = "epochs.csv"
_COLUMNS = ("epoch", "step", "loss")


class EpochTable:
    """An open table. `loss` is the mean over the epoch's steps, `validation_NAME` a metric at its end.

    It begins with the epochs that the run's log holds up to `closed_step`, so that a run that was killed and resumed
    lists none twice. Use as a context. Raises `DeviceError` when the disk refuses.
    """

    def __init__(self, folder: Path, *, closed_step: int, steps_per_epoch: int, metrics: Iterable[str]) -> None:
        self._path = folder / EPOCHS
        self._metrics = tuple(metrics)
        with replaced_file(self._path) as file:
            file.write(_lines([(*_COLUMNS, *(f"validation_{name}" for name in self._metrics))]).encode())
            file.write(_lines(self._rows(folder / LOG, closed_step, steps_per_epoch)).encode())
        with disk_errors(self._path):
            self._file: BinaryIO = disk.stream(open_private(self._path, os.O_WRONLY | os.O_APPEND), "ab")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with disk_errors(self._path), self._file:
            if error is None:  # a run that has come to its end is not resumed, which would write the table anew
                disk.sync(self._file.fileno())

    def write(self, epoch: int, step: int, loss: float, metrics: Mapping[str, float]) -> None:
        """The line can be read as soon as it is written."""
        with disk_errors(self._path):
            self._file.write(_lines([self._row(epoch, step, loss, metrics)]).encode())
            self._file.flush()

    def _rows(self, log: Path, closed_step: int, steps_per_epoch: int) -> Iterable[Sequence[object]]:
        """Holds the losses of one epoch at a time."""
        losses: list[float] = []
        row: Sequence[object] | None = None  # of the last epoch, until its validation or the next step is read
        for record in read_records(log):
            step = record["step"]
            if step > closed_step:
                break
            if record.get("event") == VALIDATION and row is not None:
                row = self._row(int(str(row[0])), int(str(row[1])), float(str(row[2])), record)
            if "event" in record:
                continue
            if row is not None:
                yield row
                row = None
            losses.append(float(record["loss"]))
            if step % steps_per_epoch == 0 or step == closed_step:
                row = self._row((step - 1) // steps_per_epoch + 1, step, fmean(losses), {})
                losses = []
        if row is not None:
            yield row

    def _row(self, epoch: int, step: int, loss: float, metrics: Mapping[str, Any]) -> Sequence[object]:
        return (epoch, step, loss, *(metrics.get(name, "") for name in self._metrics))


def _lines(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
